package session

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// TestOpenResolved checks that a link that was put into a resolved path is not followed, at any position.
func TestOpenResolved(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(root+"/a/b", 0o755), os.Symlink("a", root+"/link"), os.Symlink("b", root+"/a/last")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]error{
		"a/b": nil, "link/b": unix.ELOOP, "a/last": unix.ELOOP, "link": unix.ELOOP, "none": unix.ENOENT,
	} {
		f, err := openResolved(filepath.Join(root, name), unix.O_PATH)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestGivenLimits checks that a limit that the caller left out is a default of a keyed sandbox, so that it may differ
// from the sandbox's own.
func TestGivenLimits(t *testing.T) {
	c := CreateOptions{Spec: runner.Spec{Limits: runner.Limits{CPUs: 2, PIDs: 10}}, Unasked: []string{"cpus"}}
	got := map[string]bool{}
	all, err := c.requested(&pending{spec: c.Spec})
	for _, a := range all {
		got[a.Name] = a.Default
	}
	if err != nil || !got["cpus"] || got["pids"] {
		t.Errorf("defaults: %v, %v", got, err)
	}
}
