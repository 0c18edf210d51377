package client

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"demesne/internal/flock"
	"demesne/runner"
)

// TestRemoveLeft checks that a killed runner's files are removed, but not files whose lock a process holds, nor the
// files of a directory behind a link.
func TestRemoveLeft(t *testing.T) {
	dir, behind := t.TempDir(), t.TempDir()
	for _, d := range []string{dir, behind} {
		for _, name := range []string{"dead.lock", "dead.log", "dead.sock", "lives.lock", "lives.log", "other.log"} {
			if err := os.WriteFile(filepath.Join(d, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	lock, err := flock.TryOpen(filepath.Join(dir, "lives.lock"), os.O_RDWR, flock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	link := filepath.Join(t.TempDir(), "demesne")
	if err := os.Symlink(behind, link); err != nil {
		t.Fatal(err)
	}
	removeLeft(dir)
	removeLeft(link)
	if left, _ := filepath.Glob(dir + "/*"); !slices.Equal(left, []string{dir + "/lives.lock", dir + "/lives.log", dir + "/other.log"}) {
		t.Errorf("left: %q", left)
	}
	if left, _ := filepath.Glob(behind + "/*"); len(left) != 6 {
		t.Errorf("behind a link: %q", left)
	}
}

// TestLive checks that a runner's own sandboxes are counted, also paused ones, and not other runners'.
func TestLive(t *testing.T) {
	if n := live([]runner.Info{
		{State: runner.Running, PID: 7}, {State: runner.Paused, PID: 8}, {State: runner.Running}, {State: runner.Stopped}, {State: runner.Snapshot},
	}); n != 2 {
		t.Errorf("%d", n)
	}
}
