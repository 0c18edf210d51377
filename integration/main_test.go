package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bin is the directory of the programs under test, and tools the directory of the C helpers.
var bin, tools string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "helper:") {
		return helperMain(strings.TrimPrefix(os.Args[1], "helper:"), os.Args[2:])
	}
	// Set the canary, which the programs must not pass on: see TestEscapeP14Environment.
	os.Setenv("DEMESNE_TEST_SECRET", canary)
	dir, err := os.MkdirTemp("/var/tmp", "demesne-it.")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become subreaper:", err)
		return 1
	}
	return m.Run()
}

// toolsVar names the variable with the directory of the helpers, for tests that run in a child process.
const toolsVar = "DEMESNE_TEST_TOOLS"

// build finds or builds the programs, and compiles the helpers of testdata/c.
func build(dir string) error {
	if tools = os.Getenv(toolsVar); tools == "" {
		if err := compile(dir); err != nil {
			return err
		}
	}
	return programs(dir)
}

func compile(dir string) error {
	tools = filepath.Join(dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		return err
	}
	sources, err := filepath.Glob("testdata/c/*.c")
	if err != nil {
		return err
	}
	for _, src := range sources {
		out := filepath.Join(tools, strings.TrimSuffix(filepath.Base(src), ".c"))
		if err := tool("gcc", "-O1", "-w", "-static", "-o", out, src); err != nil {
			return err
		}
	}
	return nil
}

func programs(dir string) (err error) {
	if bin = os.Getenv("DEMESNE_BIN"); bin != "" {
		bin, err = filepath.Abs(bin)
		return err
	}
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	for _, p := range names("../cmd") {
		if p == "internal" {
			continue
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(bin, p), "../cmd/"+p)
		if p != "demesne-runner" {
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", p, err, out)
		}
	}
	return os.Symlink("demesne-frontend", filepath.Join(bin, "demesne-mcp"))
}

func tool(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
