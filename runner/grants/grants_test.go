package grants

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"demesne/internal/need"

	"golang.org/x/sys/unix"
)

// write writes record d and makes its run directory.
func write(t *testing.T, r Record) (run, name string) {
	t.Helper()
	run = t.TempDir()
	if err := os.Mkdir(filepath.Join(run, Subdir), 0o700); err != nil {
		t.Fatal(err)
	}
	name, err := r.Write(run, "key")
	if err != nil {
		t.Fatal(err)
	}
	return run, name
}

func look(t *testing.T, dir string) Dir {
	t.Helper()
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := Look(f)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// setuid reports whether the file in dir still has its set-user-ID bit.
func setuid(t *testing.T, file string) bool {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode()&os.ModeSetuid != 0
}

func TestTakeBack(t *testing.T) {
	dir, sock := t.TempDir(), filepath.Join(t.TempDir(), "s")
	d := look(t, dir)
	d.Restore = true
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(file, 0o4755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	bound, err := LookSocket(sock)
	if err != nil {
		t.Fatal(err)
	}
	run, name := write(t, Record{Dirs: []Dir{d}, Sockets: []Socket{bound}})
	if err := TakeBack(run, "another", false); err != nil || !setuid(t, file) || !Left(run, "key") {
		t.Errorf("another runner's: %v", err)
	}
	if err := TakeBack(run, "key", false); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(dir); setuid(t, file) || err != nil || uint32(st.Mode().Perm()) != d.Mode {
		t.Errorf("not settled: mode %v instead of %o, %v", st.Mode(), d.Mode, err)
	}
	if _, err := os.Lstat(sock); err == nil || Left(run, "key") || Pending(run, name) {
		t.Error("the socket or the record is left")
	}
}

// TestTakeBackShort: a record that cannot be read or settled for now stays for the next try.
func TestTakeBackShort(t *testing.T) {
	dir := t.TempDir()
	run, _ := write(t, Record{Dirs: []Dir{look(t, dir)}})
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(file, 0o4755); err != nil {
		t.Fatal(err)
	}
	for n := range 4 { // descriptors that are left: for the list, for a record, for its directory
		restore := need.Descriptors(t, n)
		err := TakeBack(run, "key", false)
		restore()
		if left := Left(run, "key"); err == nil || !left || !setuid(t, file) {
			t.Errorf("%d descriptors: %v, left %t", n, err, left)
			break
		}
	}
	if err := TakeBack(run, "key", false); err != nil || setuid(t, file) || Left(run, "key") {
		t.Error(err)
	}
}

// TestAnotherDirectory checks that a different directory or socket at the recorded path is not touched.
func TestAnotherDirectory(t *testing.T) {
	parent := t.TempDir()
	dir, sock := filepath.Join(parent, "d"), filepath.Join(parent, "s")
	for _, name := range []string{dir, dir + "2"} {
		if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d := look(t, dir)
	file := filepath.Join(dir+"2", "f")
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(file, 0o4755); err != nil {
		t.Fatal(err)
	}
	for _, swap := range []func() error{
		func() error { return os.Symlink(dir+"2", dir) },
		func() error { return os.Rename(dir+"2", dir) },
	} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := swap(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(sock, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		run, _ := write(t, Record{Dirs: []Dir{d}, Sockets: []Socket{{Path: sock, Dev: 1, Ino: 1}}})
		if err := TakeBack(run, "key", true); err == nil {
			t.Error("another directory: no error")
		}
		at := filepath.Join(dir, "f")
		if !setuid(t, at) {
			t.Error("another directory was settled")
		}
		if _, err := os.Lstat(sock); err != nil {
			t.Error("another file was removed")
		}
	}
}

// TestWhole checks that a reaper which runs while records are written finds each whole or not at all.
func TestWhole(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, Subdir), 0o700); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for range 500 {
			if _, err := (Record{Sockets: []Socket{{Path: "/s"}}}).Write(run, "key"); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		if err := each(run, "key", "", func(Record) error { return nil }); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
	}
}

// TestForged checks that forged records in a directory that real root's runner can write to have no effect: a record
// that the caller does not own, a link to one that it owns, and a file of the caller that is not a record.
func TestForged(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the test takes two users
	}
	for _, name := range []string{"another's", "link", "file"} {
		dir := t.TempDir()
		d := look(t, dir)
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(file, 0o4755); err != nil {
			t.Fatal(err)
		}
		run, record := write(t, Record{Dirs: []Dir{d}})
		path := filepath.Join(run, Subdir, record)
		if name == "file" {
			if err := os.Lchown(filepath.Dir(path), 5000, 5000); err != nil {
				t.Fatal(err)
			}
		} else if name == "link" {
			elsewhere := filepath.Join(t.TempDir(), "record")
			if err := os.Rename(path, elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Lchown(path, 5000, 5000); err != nil {
			t.Fatal(err)
		}
		if err := TakeBack(run, "key", true); err == nil || !setuid(t, file) {
			t.Errorf("%s: it was believed: %v", name, err)
		}
	}
}

// TestClock checks that an unset clock reports no change, and that a missing clock always reports one.
func TestClock(t *testing.T) {
	c := NewClock()
	if n := c.Set(); n != 0 || c.Set() != n {
		t.Errorf("set %d times", n)
	}
	none := Inherited(-1)
	if a, b := none.Set(), none.Set(); a == 0 || a == b {
		t.Errorf("no clock: %d and %d", a, b)
	}
}

// TestMark checks that a record of real root counts in the directory of its runner, also after the sandbox's end, and
// not under another name.
func TestMark(t *testing.T) {
	if os.Geteuid() != 0 {
		return // the test takes two users
	}
	for end, want := range map[string]bool{"": true, over: true, "2": false} {
		run := t.TempDir()
		records := filepath.Join(run, Subdir)
		if err := errors.Join(os.Mkdir(records, 0o700), os.Lchown(records, 5000, 5000)); err != nil {
			t.Fatal(err)
		}
		d := look(t, t.TempDir())
		d.Restore = true
		name, err := Record{Dirs: []Dir{d}}.Write(run, "key")
		if err == nil {
			err = os.Rename(filepath.Join(records, name), filepath.Join(records, name+end))
		}
		if err == nil {
			err = os.Chmod(d.Path, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = TakeBack(run, "key", false)
		st, serr := os.Stat(d.Path)
		if serr != nil {
			t.Fatal(serr)
		}
		if back := uint32(st.Mode().Perm()) == d.Mode; back != want || (err == nil) != want {
			t.Errorf("name with %q: taken back %t, %v", end, back, err)
		}
	}
}
