package upper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

	if err := Settle(nstest.Open(t, dir), Terms{}); err != nil {
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
	if err := Settle(top, Terms{}); err != nil {
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

// makeDeep makes nested directories, with many more entries beside some of them; it returns the number of those
// entries.
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

// oneLevel makes a directory, a setuid file that sorts before it and one that sorts after it, and more entries
// beside it.
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

// TestVeryDeep settles files below 20,000 directories, and those that come after them.
func TestVeryDeep(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	const depth = 20000
	dir := nstest.Tmpfs(t)
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
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
	if err = errors.Join(err, mknod(fd, "deep")); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	makeFile(t, filepath.Join(dir, "z"), unix.S_IFREG, 0o4755, 0)
	if err := Settle(nstest.Open(t, dir), Terms{}); err != nil {
		t.Error(err)
	}
	checkFile(t, filepath.Join(dir, "z"), 0o755, 0)
	var st unix.Stat_t
	if err := unix.Fstatat(fd, "deep", &st, 0); err != nil || st.Mode&0o7777 != 0o755 {
		t.Errorf("%d directories down: mode %o, %v", depth, st.Mode, err)
	}
}

// TestMoved moves a directory away while the walk is far below it. The walk must give up that branch only.
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

// TestSettleClock checks that older files keep their owner and bits, unless the clock was set. Then no file keeps a
// set-id bit, whatever its ctime.
func TestSettleClock(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for _, stepped := range []bool{false, true} {
		dir := nstest.Tmpfs(t)
		old, oldDir, young := filepath.Join(dir, "old"), filepath.Join(dir, "dir"), filepath.Join(dir, "young")
		makeFile(t, old, unix.S_IFREG, 0o4755, 0)
		makeFile(t, oldDir, unix.S_IFDIR, 0o2755, 0)
		top := nstest.Open(t, dir)
		since, err := Now(top)
		for before := since; err == nil && !since.After(before); { // until the clock of the file system has ticked
			since, err = Now(top)
		}
		if err != nil {
			t.Fatal(err)
		}
		makeFile(t, young, unix.S_IFREG, 0o4755, 0)
		if err := Settle(top, Terms{Since: since, Stepped: stepped}); err != nil {
			t.Fatal(err)
		}
		want := uint32(0o4755)
		if stepped {
			want = 0o755
		}
		checkFile(t, old, want, 0)
		checkFile(t, oldDir, 0o2755, 0)
		checkFile(t, young, 0o755, 0)
	}
}

// TestSettleMost checks that the walk ends at the limit, and reports it.
func TestSettleMost(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	dir := nstest.Tmpfs(t)
	for i := range 20 {
		makeFile(t, filepath.Join(dir, fmt.Sprint(i)), unix.S_IFREG, 0o644, 0)
	}
	if err := Settle(nstest.Open(t, dir), Terms{Most: 10}); !errors.Is(err, ErrTooMany) || !errors.Is(err, ErrRights) {
		t.Errorf("more files than were to be: %v", err)
	}
	if err := Settle(nstest.Open(t, dir), Terms{Most: 21}); err != nil {
		t.Error(err)
	}
}

// TestSettleOthers checks that outside the sandbox's user namespace only files of its own ids are changed.
func TestSettleOthers(t *testing.T) {
	if !nstest.Enter(t) || !nstest.Many() {
		return
	}
	dir := nstest.Tmpfs(t)
	for name, owner := range map[string]int{"own": 0, "sandbox": 5000, "other": 1000} {
		makeFile(t, filepath.Join(dir, name), unix.S_IFREG, 0o4755, owner)
	}
	if err := Settle(nstest.Open(t, dir), Terms{Sandbox: func(id uint32) bool { return id == 5000 }}); err != nil {
		t.Fatal(err)
	}
	checkFile(t, filepath.Join(dir, "own"), 0o755, 0)
	checkFile(t, filepath.Join(dir, "sandbox"), 0o755, 0)
	checkFile(t, filepath.Join(dir, "other"), 0o4755, 1000)
}

// TestSettleAttributes checks that no capability or access list of the sandbox stays, but those that the directory
// granted do.
func TestSettleAttributes(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	caps := string([]byte{1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // cap_setuid+ep
	mine, theirs := list(entry{tagUser, 7, 0}), list(entry{tagGroup, 6, 0})
	for _, given := range []string{"", mine} {
		dir := nstest.Tmpfs(t)
		top := nstest.Open(t, dir)
		if given != "" {
			nstest.Require(t, unix.Setxattr(dir, aclDefault, []byte(given), 0))
		}
		access, def, err := Lists(int(top.Fd()))
		if err != nil || string(def) != given {
			t.Fatalf("lists: %q %q %v", access, def, err)
		}
		makeFile(t, dir+"/f", unix.S_IFREG, 0o750, 0)
		makeFile(t, dir+"/d", unix.S_IFDIR, 0o750, 0)
		makeFile(t, dir+"/kept", unix.S_IFREG, 0o600, 0)
		for name, key := range map[string]string{"f": "security.capability", "d": aclDefault, "": aclDefault, ".": aclAccess} {
			value := theirs
			if name == "f" {
				value = caps
			}
			nstest.Require(t, unix.Setxattr(dir+"/"+name, key, []byte(value), 0))
		}
		for name, value := range map[string]string{"f": theirs, "d": theirs, "kept": mine} {
			nstest.Require(t, unix.Setxattr(dir+"/"+name, aclAccess, []byte(value), 0))
		}
		nstest.Require(t, unix.Setxattr(dir+"/f", "user.mine", []byte("x"), 0))
		if err := Settle(top, Terms{Access: access, Default: def}); err != nil {
			t.Fatal(err)
		}
		for _, of := range []struct{ name, key string }{
			{"f", "security.capability"}, {"f", aclAccess}, {"d", aclDefault}, {"d", aclAccess}, {"", aclDefault}, {"", aclAccess},
		} {
			if n, err := unix.Getxattr(dir+"/"+of.name, of.key, nil); err != unix.ENODATA {
				t.Errorf("%q has %s: %d bytes, %v", of.name, of.key, n, err)
			}
		}
		if _, err := unix.Getxattr(dir+"/kept", aclAccess, nil); (err == nil) != (given != "") {
			t.Errorf("given %q: the list of a file that has the directory's: %v", given, err)
		}
		if _, err := unix.Getxattr(dir+"/f", "user.mine", nil); err != nil {
			t.Errorf("user.mine: %v", err)
		}
		checkFile(t, dir+"/f", 0o750, 0) // and not the mask's
	}
}

// list returns an access list with one more entry, and a mask of all rights.
func list(more entry) string {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	all := []entry{{0x01, 7, ^uint32(0)}, {tagGroupObj, 5, ^uint32(0)}, {tagMask, 7, ^uint32(0)}, {0x20, 0, ^uint32(0)}}
	at := 1
	if more.tag == tagGroup {
		at = 2
	}
	for _, e := range slices.Insert(all, at, more) {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return string(b)
}
