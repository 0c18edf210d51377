package client

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"demesne/runner"
	"demesne/runner/grants"
	"demesne/runner/ipc"
)

func TestExposed(t *testing.T) {
	// The directory above must be searchable by all users, unlike the test's own temporary directory.
	base, err := os.MkdirTemp("/var/tmp", "demesne-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	dir := filepath.Join(base, "a", "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link") // the mode of the link's own directory must not matter
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name       string
		base, a, b os.FileMode
		want       bool
	}{
		{"open", 0o755, 0o755, 0o755, true},
		{"sticky", 0o1777, 0o755, 0o755, true},
		{"itself closed", 0o755, 0o755, 0o700, false},
		{"closed above", 0o755, 0o700, 0o777, false},
		{"far above", 0o700, 0o755, 0o777, false},
		{"a group may pass", 0o750, 0o755, 0o755, true},
		{"readable, not to be passed", 0o755, 0o744, 0o755, false},
	} {
		for path, mode := range map[string]os.FileMode{dir: row.b, filepath.Dir(dir): row.a, base: row.base} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{dir, link} {
			if got := exposed(path); got != row.want {
				t.Errorf("%s: %q exposed: %t", row.name, path, got)
			}
		}
	}
	if !exposed(filepath.Join(base, "none")) {
		t.Error("a missing directory counts as closed")
	}
}

// TestOpenSource: a link that was put into the caller's path is not followed.
func TestOpenSource(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(dir+"/real/sub", 0o755), os.Symlink("real", dir+"/way"), os.Symlink("sub", dir+"/real/last")); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		path  string
		given bool
		want  error
	}{
		{"/real/sub", true, nil},
		{"/way/sub", true, syscall.ELOOP},
		{"/real/last", true, syscall.ELOOP},
		{"/way/sub", false, nil}, // demesne's own programs may be installed through links
	} {
		f, err := openSource(dir+row.path, row.given)
		if !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.path, err, row.want)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestSourcesOwn: relative paths become absolute for the runner, but not in the caller's own values.
func TestSourcesOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	run := t.TempDir()
	if err := errors.Join(os.Mkdir("in", 0o700), os.Mkdir("root", 0o700), os.Mkdir(run+"/grants", 0o700)); err != nil {
		t.Fatal(err)
	}
	c := &Client{dir: &runDir{path: run, sandboxRoot: t.TempDir()}}
	given := runner.Spec{Inputs: []runner.Input{{Path: "in"}}, Rootfs: &runner.Rootfs{Dir: "root"}, Out: t.TempDir()}
	spec := given
	s, err := c.sources(&spec)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	if !filepath.IsAbs(spec.Inputs[0].Path) || !filepath.IsAbs(spec.Rootfs.Dir) {
		t.Errorf("not absolute: %q, %q", spec.Inputs[0].Path, spec.Rootfs.Dir)
	}
	if given.Inputs[0].Path != "in" || given.Rootfs.Dir != "root" {
		t.Errorf("the caller has %q, %q", given.Inputs[0].Path, given.Rootfs.Dir)
	}
}

// TestRefused: a call that the runner refused leaves no record. After a cancelled call the sandbox may exist, so its
// record and socket stay until the runner removes them.
func TestRefused(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		left bool
	}{
		{"refused", ipc.Errorf(ipc.CodeInvalid, "no"), false},
		{"cancelled", context.Canceled, true},
		{"too late", context.DeadlineExceeded, true},
		{"the runner ended", ipc.ErrClosed, true},
	} {
		c := &Client{dir: &runDir{path: t.TempDir(), key: "key"}}
		if err := os.Mkdir(filepath.Join(c.dir.path, grants.Subdir), 0o700); err != nil {
			t.Fatal(err)
		}
		s := sourceFiles{c: c}
		name, err := s.granted.Write(c.dir.path, c.dir.key)
		if err != nil {
			t.Fatal(err)
		}
		s.refused(runner.Spec{Handover: runner.Handover{Granted: name}}, row.err)
		if left := grants.Left(c.dir.path, c.dir.key); left != row.left {
			t.Errorf("%s: record left: %t", row.name, left)
		}
	}
}
