package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"demesne/runner/container"
)

// TestPlaces checks that one sandbox at a time has the prepared paths, and that nothing is left of it there.
func TestPlaces(t *testing.T) {
	root, dir := t.TempDir(), filepath.Join(t.TempDir(), "places")
	d := container.Dirs{In: t.TempDir(), Out: t.TempDir(), Workspace: t.TempDir()}
	if _, err := takePlaces(root, d); !errors.Is(err, errUnprepared) {
		t.Errorf("nothing is prepared: %v", err)
	}
	for _, name := range []string{"in", "out", "workspace"} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := takePlaces(root, d); err == nil {
		t.Error("their directory does not exist")
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o777)
	if _, err := takePlaces(root, d); err == nil {
		t.Error("every user can write to their directory")
	}
	os.Chmod(dir, 0o755)
	os.Symlink("/nowhere", filepath.Join(dir, "out")) // of a runner that was killed
	release, err := takePlaces(root, d)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "out/f"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(d.Out, "f")); err != nil {
		t.Error(err)
	}
	if _, err := takePlaces(root, d); !errors.Is(err, errPlacesTaken) {
		t.Errorf("a second sandbox: %v", err)
	}
	release()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if release, err = takePlaces(root, d); err != nil {
		t.Errorf("the next sandbox: %v", err)
	} else {
		release()
	}
}

// TestFilesAt checks where the directories of a sandbox are that callers name as in every other sandbox.
func TestFilesAt(t *testing.T) {
	f := &files{dirs: container.Dirs{In: "/s/in", Out: "/o", Workspace: "/w"}}
	for dir, want := range map[string]string{"/out": "/o", "/out/a": "/o/a", "/outer": "/outer", "/in/x": "/s/in/x", "/workspace": "/w", "/tmp": "/tmp", "": ""} {
		if got := f.at(dir); got != want {
			t.Errorf("%q: %q, want %q", dir, got, want)
		}
	}
	f.placed = true
	if got := f.at("/out/a"); got != "/out/a" {
		t.Errorf("prepared: %q", got)
	}
}
