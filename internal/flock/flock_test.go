package flock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestModes checks which locks exclude each other, and that a lock ends with its file.
func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func(how Mode) (*os.File, error) { return TryOpen(path, os.O_RDWR|os.O_CREATE, how) }
	if held, err := Held(path); held || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v, %v", held, err)
	}
	a, err := open(Shared)
	if err != nil {
		t.Fatal(err)
	}
	b, err := open(Shared)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := Held(path); held || err != nil {
		t.Errorf("with shared locks: %v, %v", held, err)
	}
	if _, err := open(Exclusive); !errors.Is(err, ErrLocked) {
		t.Errorf("exclusive beside shared: %v", err)
	}
	if err := Try(a, Exclusive); !errors.Is(err, ErrLocked) {
		t.Errorf("two raise: %v", err)
	}
	b.Close()
	if err := Lock(a, Exclusive); err != nil {
		t.Errorf("raise: %v", err)
	}
	if held, err := Held(path); !held || err != nil {
		t.Errorf("with an exclusive lock: %v, %v", held, err)
	}
	a.Close()
	if held, err := Held(path); held || err != nil {
		t.Errorf("after its end: %v, %v", held, err)
	}
}

// TestReplaced checks that a lock on a removed file does not count.
func TestReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := TryOpen(path, os.O_RDWR|os.O_CREATE, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *os.File)
	go func() {
		f, err := Open(t.Context(), path, os.O_RDWR|os.O_CREATE, Exclusive)
		if err != nil {
			t.Error(err)
		}
		done <- f
	}()
	os.Remove(path)
	first.Close()
	f := <-done
	defer f.Close()
	if !Leads(path, f) {
		t.Error("what is locked is not what the path leads to")
	}
	if err := errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)); err != nil {
		t.Fatal(err)
	}
	if f, err := TryOpen(path, os.O_RDONLY, Shared); err == nil {
		f.Close()
		t.Error("a link is followed")
	}
}
