package agents

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
)

// TestLockHome checks that a run of a conversation keeps the directory of its first run in use, alone, and that the directory's
// age begins at the end of the run.
func TestLockHome(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/home", 0o700); err != nil {
		t.Fatal(err)
	}
	changed := func() time.Time {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		return time.Unix(st.Ctim.Unix())
	}
	before := changed()
	release, err := LockHome(dir + "/home")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockHome(dir + "/home"); err == nil {
		t.Error("two runs have one home")
	}
	if f, err := flock.TryOpen(dir, unix.O_DIRECTORY, flock.Exclusive); err == nil {
		f.Close()
		t.Error("the directory is not in use")
	}
	time.Sleep(20 * time.Millisecond) // the clock of files has steps
	if release(); !changed().After(before) {
		t.Error("the directory is as old as before")
	}
	if f, err := flock.TryOpen(dir, unix.O_DIRECTORY, flock.Exclusive); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}
