package wrote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

func TestSettle(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir, outside := nstest.Tmpfs(t), filepath.Join(t.TempDir(), "outside")
	foreign := 1000
	if !nstest.Many() {
		foreign = 0
	}
	reg, sub := uint32(unix.S_IFREG), uint32(unix.S_IFDIR)
	rows := []struct {
		name       string
		kind, mode uint32
		want       uint32
	}{
		{"plain", reg, 0o640, 0o640},
		{"program", reg, 0o755, 0o755},
		{"setuid", reg, 0o4755, 0o755},
		{"setgid", reg, 0o2755, 0o755},
		{"sticky", reg, 0o1644, 0o644},
		{"all", reg, 0o7777, 0o777},
		{"closed", reg, 0o4000, 0},
		{"fifo", unix.S_IFIFO, 0o4666, 0o666},
		{"dir", sub, 0o6755, 0o755},
		{"dir/setuid", reg, 0o6711, 0o711},
		{"shared", sub, 0o3777, 0o1777},
		{"locked", sub, 0o2000, 0},
		{"locked/setuid", reg, 0o4755, 0o755},
	}
	for _, row := range rows {
		makeFile(t, filepath.Join(dir, row.name), row.kind, row.mode, foreign)
	}
	makeFile(t, outside, reg, 0o4755, foreign)
	for name, target := range map[string]string{"dir/link": outside, "passwd": "/etc/passwd", "up": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(dir, "other")
	if err := errors.Join(os.Mkdir(other, 0o755), unix.Mount("tmpfs", other, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	makeFile(t, filepath.Join(other, "setuid"), reg, 0o4755, foreign)

	if err := Settle(nstest.Open(t, dir), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		checkFile(t, filepath.Join(dir, row.name), row.want, 0)
	}
	checkFile(t, filepath.Join(dir, "dir/link"), 0o777, 0)
	checkFile(t, outside, 0o4755, foreign)
	checkFile(t, filepath.Join(other, "setuid"), 0o4755, foreign)
}

func makeFile(t *testing.T, path string, kind, mode uint32, owner int) {
	t.Helper()
	var err error
	switch kind {
	case unix.S_IFDIR:
		err = os.Mkdir(path, 0o700)
	case unix.S_IFIFO:
		err = unix.Mkfifo(path, 0o600)
	default:
		err = os.WriteFile(path, []byte("x"), 0o600)
	}
	if err := errors.Join(err, os.Lchown(path, owner, owner), unix.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func checkFile(t *testing.T, path string, mode uint32, owner int) {
	t.Helper()
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if err != nil || st.Mode&0o7777 != mode || int(st.Uid) != owner || int(st.Gid) != owner {
		t.Errorf("%s: mode %o owner %d:%d (%v), want %o %d", path, st.Mode&0o7777, st.Uid, st.Gid, err, mode, owner)
	}
}

// TestDeep settles trees deeper than any path can be long, wide at places, with few descriptors.
func TestDeep(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	t.Run("tmpfs", func(t *testing.T) { deep(t, nstest.Tmpfs(t), 5000, 500) })
	t.Run("disk", func(t *testing.T) { deep(t, t.TempDir(), 200, 100) })
}

func deep(t *testing.T, dir string, depth, wide int) {
	wides := makeDeep(t, dir, depth, wide)
	before := nstest.FDs(t)
	top := nstest.Open(t, dir)
	if err := Settle(top, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if after := nstest.FDs(t); after != before+1 {
		t.Errorf("%d descriptors afterwards, %d before", after, before)
	}
	seen, setuid, most := 0, 0, 0
	w := walk{visit: func(_ int, _ string, st *unix.Statx_t) error {
		seen++
		if st.Mode&0o6000 != 0 {
			setuid++
		}
		if seen%1000 == 0 {
			most = max(most, nstest.FDs(t))
		}
		return nil
	}}
	if err := w.run(top); err != nil {
		t.Error(err)
	}
	if want := 1 + 3*depth + wides; seen != want || setuid != 0 {
		t.Errorf("saw %d files, %d with setuid, want %d and 0", seen, setuid, want)
	}
	if most > before+maxOpen+5 {
		t.Errorf("%d descriptors open during the walk", most)
	}
}

// makeDeep makes a directory in a directory, and so on, and sometimes many more files beside it;
// it returns how many.
func makeDeep(t *testing.T, dir string, depth, wide int) (wides int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := range depth {
		beside := 0
		if i%1000 == 100 {
			beside = wide
			wides += 2 * wide
		}
		err = errors.Join(err, oneLevel(fd, beside))
		next, nerr := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		if err = errors.Join(err, nerr); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	unix.Close(fd)
	return wides
}

// oneLevel makes a directory, a setuid file on each side of it in whatever order, and more beside it.
func oneLevel(fd, wide int) error {
	err := errors.Join(unix.Mkdirat(fd, "d", 0o755), mknod(fd, "a"), mknod(fd, "z"))
	for i := range wide {
		err = errors.Join(err, mknod(fd, fmt.Sprint("file", i)), unix.Mkdirat(fd, fmt.Sprint("dir", i), 0o2755))
	}
	return err
}

func mknod(fd int, name string) error {
	return errors.Join(unix.Mknodat(fd, name, unix.S_IFREG|0o755, 0), unix.Fchmodat(fd, name, 0o4755, 0))
}

// TestTooDeep ends at the limit, says so, and still does the rest.
func TestTooDeep(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Tmpfs(t)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range maxDepth + 10 {
		next := -1
		if err == nil {
			err = unix.Mkdirat(fd, "d", 0o755)
		}
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	makeFile(t, filepath.Join(dir, "z"), unix.S_IFREG, 0o4755, 0)
	err = Settle(nstest.Open(t, dir), time.Time{})
	if err == nil || !strings.HasSuffix(err.Error(), "too deep") {
		t.Errorf("got error %v", err)
	}
	checkFile(t, filepath.Join(dir, "z"), 0o755, 0)
}

// TestMoved moves a directory away while the walk is far below it: the walk gives up that branch,
// and not the rest.
func TestMoved(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Tmpfs(t)
	if err := errors.Join(os.MkdirAll(dir+"/a"+strings.Repeat("/d", 2*maxOpen), 0o755), os.Mkdir(dir+"/b", 0o755),
		os.MkdirAll(dir+"/c/c/c", 0o755)); err != nil {
		t.Fatal(err)
	}
	top, depth := 0, 0
	w := walk{}
	w.visit = func(_ int, name string, _ *unix.Statx_t) error {
		if len(w.levels) == 1 && name != "" {
			top++
		}
		if name == "d" {
			depth++
		}
		if depth == 2*maxOpen { // once, at the bottom
			depth++
			return os.Rename(dir+"/a/d/d/d", dir+"/b/moved")
		}
		return nil
	}
	err := w.run(nstest.Open(t, dir))
	if top != 3 || !errors.Is(err, errMoved) && err != nil {
		t.Errorf("saw %d names at the top, want 3; %v", top, err)
	}
}

// What was there before the sandbox keeps its owner and its bits.
func TestSettleLeavesWhatWasThere(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Tmpfs(t)
	old, young := filepath.Join(dir, "old"), filepath.Join(dir, "young")
	for _, p := range []string{old, young} {
		if err := os.WriteFile(p, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(old, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * clockGrain)
	since := time.Now()
	time.Sleep(clockGrain)
	if err := os.Chmod(young, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := Settle(nstest.Open(t, dir), since); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{old: 0o755 | os.ModeSetuid, young: 0o755} {
		if st, err := os.Stat(p); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", p, st.Mode(), err, want)
		}
	}
}
