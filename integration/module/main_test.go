package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRename renames a copy of the tree, and imports its client from another module. With make test-release it also builds the
// programs and runs one, which takes most of the time.
func TestRename(t *testing.T) {
	const path = "example.test/someone/demesne"
	root := t.TempDir()
	copyTree(t, root)
	if err := rename(root, path); err != nil {
		t.Fatal(err)
	}
	if left := run(t, root, "go", "list", "-f", `{{range .Imports}}{{println .}}{{end}}`, "./..."); strings.Contains("\n"+left, "\ndemesne/") {
		t.Errorf("imports of the old path are left:\n%s", left)
	}
	if os.Getenv("DEMESNE_RELEASE") != "" {
		buildAndRun(t, root, path)
	}

	other := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.test/other\n\ngo 1.26.0\n\nrequire " + path + "/client v0.0.0\n\nreplace " + path + "/client => " + root + "/client\n",
		"main.go": "package main\n\nimport \"" + path + "/client\"\n\n" +
			"func main() {\n\tc, err := client.New(client.Options{URL: client.DefaultURL, Token: \"x\"})\n\tprintln(c != nil, err == nil)\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(t, other, "go", "run", "."); got != "true true" {
		t.Errorf("a program with the client: %q", got)
	}
}

// buildAndRun compiles the renamed programs, for which the cache has no package, and runs a sandbox.
func buildAndRun(t *testing.T, root, path string) {
	t.Helper()
	bin := root + "/bin"
	fast := []string{"go", "build", "-gcflags=" + path + "/...=-N -l", "-ldflags=-w", "-o", bin + "/"} // the cache has no package of this path
	t.Setenv("CGO_ENABLED", "0")
	run(t, root, append(fast, "./cmd/demesne", "./cmd/demesne-init")...)
	t.Setenv("CGO_ENABLED", "1")
	run(t, root, append(fast, "./cmd/demesne-runner")...)
	if got := run(t, root, bin+"/demesne", "version"); !strings.HasPrefix(got, "demesne ") {
		t.Errorf("version: %q", got)
	}
	home, err := os.MkdirTemp("/tmp", "dm") // short: a socket's path has at most 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	os.Mkdir(home+"/run", 0o700)
	for name, value := range map[string]string{"HOME": home, "XDG_RUNTIME_DIR": home + "/run", "DEMESNE_LIBEXEC": bin, "DEMESNE_LINGER": "0s", "DEMESNE_POOL_SIZE": "0",
		"DEMESNE_SANDBOX_ROOT": home + "/kept", "GOCACHE": run(t, root, "go", "env", "GOCACHE"), "GOMODCACHE": run(t, root, "go", "env", "GOMODCACHE"), "GOPROXY": "off"} {
		t.Setenv(name, value)
	}
	if got := run(t, root, bin+"/demesne", "run", "--", "echo", "hello"); got != "hello" {
		t.Errorf("run: %q", got)
	}
}

// copyTree copies the sources.
func copyTree(t *testing.T, to string) {
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		from, to := filepath.Join("../..", e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.Name() == "bin" || strings.HasPrefix(e.Name(), "."):
		case e.IsDir():
			err = os.CopyFS(to, os.DirFS(from))
		default:
			var b []byte
			if b, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(to, b, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// run returns what a command prints, without space at its ends.
func run(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestPaths(t *testing.T) {
	for _, bad := range []string{"", "demesne", "example.test", "example.test/", "Example.test/x", "example.test/a b", "../x"} {
		if err := rename(t.TempDir(), bad); err == nil || !strings.Contains(err.Error(), "not HOST/NAME") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
