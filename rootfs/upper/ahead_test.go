package upper_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs"
	"demesne/rootfs/internal/nstest"
	"demesne/rootfs/upper"
)

// tick is longer than a ctime lags behind the clock.
const tick = 20 * time.Millisecond

// look describes everything in a copy of an upper: each name with its relevant properties.
func look(t *testing.T, kept *os.File) map[string]string {
	t.Helper()
	top := fsutil.FDPath(int(kept.Fd())) + "/up"
	seen, first := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(top+"/", func(name string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err := errors.Join(err, unix.Lstat(name, &st)); err != nil {
			return err
		}
		rel := strings.TrimPrefix(name, top)
		if _, ok := first[st.Ino]; !ok {
			first[st.Ino] = rel
		}
		var text string
		marks, err := attributes(kept, "up"+rel)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, rerr := os.ReadFile(name)
			text, err = fmt.Sprintf("%d %s %.60q", st.Size, first[st.Ino], b), errors.Join(err, rerr)
		case unix.S_IFLNK:
			text, err = os.Readlink(name)
		case unix.S_IFCHR: // a whiteout's time means nothing
			st.Mtim = unix.Timespec{}
		}
		seen[rel] = fmt.Sprintf("%o %d:%d %d.%09d %s %v", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, text, marks)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// twinned is a tree that is written to, and its upper.
type twinned struct {
	*rootfs.Tree
	upper *os.File
}

func (w twinned) in(name string) string { return w.Root + "/" + name }

func newTwinned(t *testing.T) twinned {
	t.Helper()
	low := nstest.Layer(t, map[string]string{"bin/sh": "sh", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "low/a": "a", "low/b": "b", "gone/x": "x", "l1": "1", "l2": "2"})
	kept := nstest.Dir(t)
	w := twinned{Tree: tree(t, low, kept)}
	var err error
	if w.upper, err = rootfs.KeptUpper(kept); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.upper.Close() })
	err = errors.Join(os.MkdirAll(w.in("d/sub"), 0o755), os.MkdirAll(w.in("e"), 0o755), os.RemoveAll(w.in("gone")), os.Remove(w.in("l1")),
		os.Link(w.in("low/a"), w.in("low/twin")), os.Symlink("x", w.in("link")), unix.Mkfifo(w.in("pipe"), 0o600), unix.Setxattr(w.in("d"), "user.mine", []byte("1"), 0))
	for _, name := range []string{"f", "g", "d/f", "d/sub/f", "e/f"} {
		err = errors.Join(err, os.WriteFile(w.in(name), []byte(name), 0o644))
	}
	for i := range 8 { // files with two names, in directories that are read in arbitrary order
		for _, dir := range []string{"one", "two"} {
			err = errors.Join(err, os.MkdirAll(w.in(fmt.Sprintf("%s/%d", dir, i)), 0o755))
		}
		one, two := w.in(fmt.Sprintf("one/%d/x", i)), w.in(fmt.Sprintf("two/%d/x", i))
		err = errors.Join(err, os.WriteFile(one, []byte{byte(i)}, 0o644), os.Link(one, two))
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * tick) // later changes are later by any clock
	return w
}

// TestAhead checks that the copy equals a copy made in a single pass, whatever happens between the two passes. Unchanged
// files are not copied again.
func TestAhead(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	rename := func(pairs ...string) func(twinned) error {
		return func(w twinned) (err error) {
			for i := 0; i < len(pairs); i += 2 {
				err = errors.Join(err, os.Rename(w.in(pairs[i]), w.in(pairs[i+1])))
			}
			return err
		}
	}
	write := func(name, text string) func(twinned) error {
		return func(w twinned) error { return os.WriteFile(w.in(name), []byte(text), 0o600) }
	}
	for name, change := range map[string]func(w twinned) error{
		"nothing":          func(twinned) error { return nil },
		"written":          write("f", "F"),
		"written, as long": write("d/sub/f", "D/SUB/F"),
		"touched to before": func(w twinned) error {
			return errors.Join(write("f", "F")(w), os.Chtimes(w.in("f"), time.Unix(1, 0), time.Unix(1, 0)))
		},
		"made":            write("d/new", "new"),
		"removed":         func(w twinned) error { return errors.Join(os.Remove(w.in("f")), os.RemoveAll(w.in("d"))) },
		"whiteout":        func(w twinned) error { return errors.Join(os.Remove(w.in("l2")), os.Remove(w.in("low/b"))) },
		"over a whiteout": write("l1", "new"),
		"copied up":       write("low/b", "B"),
		"renamed":         rename("f", "h"),
		"files swapped":   rename("f", "t", "g", "f", "t", "g"),
		"directory moved": rename("d/sub", "e/sub"),
		"directories of one name moved": func(w twinned) (err error) {
			for i := range 8 {
				from, dir := w.in(fmt.Sprintf("one/%d", i)), "two"
				if i%2 > 0 {
					from, dir = w.in(fmt.Sprintf("two/%d", i)), "one"
				}
				err = errors.Join(err, os.Rename(from, w.in(fmt.Sprintf("%s/1%d", dir, i))))
			}
			return err
		},
		"made again": func(w twinned) error {
			return errors.Join(os.RemoveAll(w.in("e")), os.Mkdir(w.in("e"), 0o700), write("e/f", "new")(w))
		},
		"became a directory": func(w twinned) error {
			return errors.Join(os.Remove(w.in("f")), os.Mkdir(w.in("f"), 0o700), write("f/x", "x")(w))
		},
		"became a file":  func(w twinned) error { return errors.Join(os.RemoveAll(w.in("d")), write("d", "d")(w)) },
		"linked":         func(w twinned) error { return os.Link(w.in("f"), w.in("d/f2")) },
		"linked no more": func(w twinned) error { return os.Remove(w.in("low/twin")) },
		"linked to another": func(w twinned) error {
			return errors.Join(os.Remove(w.in("low/twin")), os.Link(w.in("f"), w.in("low/twin")))
		},
		"twin written": write("low/a", "A"),
		"mode": func(w twinned) error {
			return errors.Join(os.Chmod(w.in("f"), 0o700), os.Chmod(w.in("d"), 0o700), os.Chmod(w.Root, 0o700))
		},
		"attribute":      func(w twinned) error { return unix.Setxattr(w.in("f"), "user.mine", []byte("2"), 0) },
		"attribute gone": func(w twinned) error { return unix.Removexattr(w.in("d"), "user.mine") },
		"link":           func(w twinned) error { return errors.Join(os.Remove(w.in("link")), os.Symlink("y", w.in("link"))) },
	} {
		w := newTwinned(t)
		kept, whole := nstest.Dir(t), nstest.Dir(t)
		twin, err := upper.NewLiveCopy(w.upper, kept, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		twin.Ahead(time.Now(), nil)
		ahead := twin.Bytes()
		if err := change(w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := errors.Join(twin.Settle(), twin.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "nothing" && (ahead == 0 || twin.Bytes() != ahead) {
			t.Errorf("%d bytes ahead, %d in all", ahead, twin.Bytes())
		}
		all, err := copyUpper(w.upper, whole)
		if err != nil || twin.Bytes() != all {
			t.Errorf("%s: %d bytes, not %d: %v", name, twin.Bytes(), all, err)
		}
		if got, want := look(t, kept), look(t, whole); !maps.Equal(got, want) {
			t.Errorf("%s: the copy has\n%s\nnot\n%s", name, lines(got, want), lines(want, got))
		}
	}
}

// lines returns the entries of a that b lacks.
func lines(a, b map[string]string) string {
	var text strings.Builder
	for name, what := range a {
		if b[name] != what {
			fmt.Fprintln(&text, name, what)
		}
	}
	return text.String()
}

// TestAheadBusy does the same while files are written, renamed and removed all the time.
func TestAheadBusy(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	w := newTwinned(t)
	for i := range 200 {
		name := w.in(fmt.Sprintf("e/%d/f", i%20)) + strings.Repeat("x", i%3)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, bytes.Repeat([]byte{byte(i)}, 1000), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 10 {
		kept, whole := nstest.Dir(t), nstest.Dir(t)
		twin, err := upper.NewLiveCopy(w.upper, kept, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// Each may fail, as the other goroutines interfere.
				dir := w.in(fmt.Sprintf("e/%d", i%20))
				os.Rename(dir, w.in(fmt.Sprintf("e/%d", (i*7+1)%20)))
				os.Mkdir(dir, 0o755)
				os.WriteFile(dir+"/f", fmt.Appendf(nil, "%d %d", round, i), 0o600)
				os.Link(dir+"/f", w.in(fmt.Sprintf("e/%d/l", i%17)))
				os.Rename(dir+"/f", dir+"/g")
				os.Remove(w.in(fmt.Sprintf("e/%d/l", i%13)))
				if i%5 == 0 {
					os.RemoveAll(w.in(fmt.Sprintf("e/%d", i%11)))
				}
			}
		}()
		twin.Ahead(time.Now(), nil)
		close(stop)
		<-stopped
		if err := errors.Join(twin.Settle(), twin.Close()); err != nil {
			t.Error(err)
		}
		if _, err := copyUpper(w.upper, whole); err != nil {
			t.Fatal(err)
		}
		if got, want := look(t, kept), look(t, whole); !maps.Equal(got, want) {
			t.Fatalf("round %d: the copy has\n%s\nnot\n%s", round, lines(got, want), lines(want, got))
		}
	}
}

// TestAheadMapped checks that mapped files are copied at the end, as stores into a mapping leave no trace. If a
// mapped file cannot be identified, nothing is copied ahead.
func TestAheadMapped(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for open, ahead := range map[string]bool{"/f": true, "/nowhere": false, "/link/x": false, "/../f": false} {
		w := newTwinned(t)
		f, err := os.OpenFile(w.in("f"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		m[0] = 'x'
		time.Sleep(2 * tick)
		kept := nstest.Dir(t)
		twin, err := upper.NewLiveCopy(w.upper, kept, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		twin.Ahead(time.Now(), []string{open})
		if (twin.Bytes() > 0) != ahead {
			t.Errorf("%s: %d bytes were copied ahead", open, twin.Bytes())
		}
		m[0] = 'y'
		if err := errors.Join(twin.Settle(), twin.Close(), unix.Munmap(m), f.Close()); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(fsutil.FDPath(int(kept.Fd())) + "/up/f"); string(b) != "y" {
			t.Errorf("%s: the copy has %q, %v", open, b, err)
		}
	}
}

// TestAheadBounds checks that endless changes are copied ahead only up to the limits.
func TestAheadBounds(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	w := newTwinned(t)
	if err := os.WriteFile(w.in("big"), make([]byte, 4<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * tick)
	for _, most := range []int64{0, 100, 1 << 20, 3 << 20} {
		kept := nstest.Dir(t)
		twin, err := upper.NewLiveCopy(w.upper, kept, most)
		if err != nil {
			t.Fatal(err)
		}
		twin.Ahead(time.Now(), nil)
		if n := twin.Bytes(); n > most+1<<20 {
			t.Errorf("%d bytes ahead, of %d", n, most)
		}
		if err := errors.Join(twin.Settle(), twin.Close()); err != nil {
			t.Error(err)
		}
		if b, err := os.ReadFile(fsutil.FDPath(int(kept.Fd())) + "/up/big"); len(b) != 4<<20 {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
}
