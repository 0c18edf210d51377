package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"demesne/cli/app"
	"demesne/cli/stream"
)

// TestMain gives scripts two programs: demesne is the real main, and bare the same program with commands of the
// host in place of sandboxes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"demesne":        Main,
		"demesne-images": hands,
		"bare": func() {
			a := &app.App{
				Console: app.Console{Files: stream.Files{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}, Env: os.LookupEnv},
				Connect: connectBare, Images: openBareImages,
			}
			os.Exit(execute(a, os.Args[1:]))
		},
	})
}

func TestScripts(t *testing.T) {
	beside := programs(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		UpdateScripts:      os.Getenv("UPDATE") != "",
		RequireUniqueNames: true,
		Cmds:               map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir+"/home")
			e.Setenv("DEMESNE_IMAGE_STORE", e.WorkDir+"/images")
			e.Setenv("DEMESNE_LIBEXEC", e.WorkDir+"/nowhere")
			e.Setenv("BESIDE", beside)
			return os.Mkdir(e.WorkDir+"/home", 0o755)
		},
	})
}

// programs returns the directory of demesne-proxy and demesne-frontend: $DEMESNE_BIN, or one where it was just built.
func programs(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("DEMESNE_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", dir, "../cmd/demesne-proxy", "../cmd/demesne-frontend").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// exits implements "exits CODE CMD ARG…" in scripts.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s", got, args[0])
	}
}
