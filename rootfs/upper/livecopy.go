package upper

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/openat"
)

// A LiveCopy is a copy of an overlay's upper that another overlay will have below it: whiteouts and opaque directories are
// what they were, and names that were one file are one file.
//
//	t, err := NewLiveCopy(upper, kept, most)
//	… the sandbox holds still, since is now, open are the files that it has mapped, and it goes on …
//	t.Ahead(since, open)
//	… it holds still again …
//	err = t.Settle()
//	t.Close()
//
// [LiveCopy.Settle] alone makes the copy. [LiveCopy.Ahead] has most of it made before, while the sandbox writes: Settle then copies only
// what was changed. Whatever changes what is in a file, what it is called or what is known of it changes its ctime, which nobody can set;
// so what was copied of a file whose ctime is from before since is right, whenever that was, and what became of the
// file's name tells its inode number. The one exception are stores into pages that were mapped, writable and dirty
// already (page_mkwrite is called for a clean one only): files that may have such are never copied ahead.
//
// Where the file system can share contents (FICLONE: btrfs, xfs, bcachefs) the copy shares them.
type LiveCopy struct {
	upper int
	c     copier
}

// liveCopy is what a copier is told of the copy.
type liveCopy struct {
	top   int                   // of the copy
	at    string                // the directory below top that is being copied
	files map[[2]uint64]*linked // of several names
	bytes int64                 // that the copy has of its own, and those that are shared with the original are not
	mark  int64                 // what that was before this entry

	ahead  bool                // the sandbox writes meanwhile
	room   int64               // what may be copied ahead, in bytes
	made   map[string]original // ahead, and whole
	mapped map[uint64]bool     // inodes that are not copied ahead
	since  unix.Timespec       // what was changed later is copied again
	here   map[string]bool     // what the directory has that is copied into
}

// linked is a file of several names.
type linked struct {
	first string // where it is
	bytes int64  // that were copied
}

// original is what an entry is a copy of. A number alone may be another one's by now.
type original struct {
	ino   uint64
	dir   bool
	bytes int64 // that were copied
}

// What one entry counts as besides its bytes, and how many are remembered, in copying ahead: a sandbox may feed it
// for as long as it lasts.
const (
	entryRoom = 4 << 10
	madeMax   = 1 << 18
)

// errEnough ends copying ahead.
var errEnough = errors.New("enough was copied ahead")

// NewLiveCopy begins a copy of what a sandbox wrote, which rootfs.KeptUpper opened, in a directory that will be another's rootfs.Layout.Kept.
// upper stays open until Close. About most bytes are copied ahead, and no more.
func NewLiveCopy(dir, kept *os.File, most int64) (*LiveCopy, error) {
	at := int(kept.Fd())
	if err := openat.Mkdir(at, "up", 0o700); err != nil {
		return nil, err
	}
	top, err := enter(at, "up")
	if err != nil {
		return nil, err
	}
	return &LiveCopy{int(dir.Fd()), copier{buf: make([]byte, 1<<20), twin: &liveCopy{top: top, room: most}}}, nil
}

// Close closes what the copy was made with, and no file of the caller's.
func (t *LiveCopy) Close() error { return unix.Close(t.c.twin.top) }

// Bytes is how much the copy has of its own, in bytes; what it shares with the original is not.
func (t *LiveCopy) Bytes() int64 { return t.c.twin.bytes }

// clockTick is more than the coarse clock that ctime is taken from is ever behind.
const clockTick = 20 * time.Millisecond

// Ahead copies what it can while the sandbox goes on. At since it held still, and had the files mapped that open names, by the
// paths they have inside. It reports nothing: what it could not copy, Settle will.
func (t *LiveCopy) Ahead(since time.Time, open []string) {
	w := t.c.twin
	w.ahead, w.made, w.mapped = true, map[string]original{}, map[uint64]bool{}
	w.since = unix.NsecToTimespec(since.Add(-clockTick).UnixNano())
	for _, name := range open {
		ino, err := t.inode(name)
		if err != nil {
			w.made = nil
			return // it cannot be told which file that is
		}
		w.mapped[ino] = true
	}
	_ = t.pass()
}

// inode finds a file by the path it has inside.
func (t *LiveCopy) inode(name string) (uint64, error) {
	fd, err := unix.Openat2(t.upper, strings.TrimPrefix(name, "/"), &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	return st.Ino, err
}

// Settle makes the copy whole and right. The sandbox does not write meanwhile.
func (t *LiveCopy) Settle() error {
	t.c.twin.ahead, t.c.twin.bytes = false, 0
	if err := t.pass(); err != nil {
		return fmt.Errorf("copy files: %w", err)
	}
	return nil
}

func (t *LiveCopy) pass() error {
	t.c.twin.files = map[[2]uint64]*linked{}
	from, err := enter(t.upper, ".")
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return os.NewSyscallError("stat", err)
	}
	into, err := enter(t.c.twin.top, ".")
	if err != nil {
		return err
	}
	defer unix.Close(into)
	if err := t.c.dir(from, into, "", 0); err != nil {
		return err
	}
	// As "." its attributes are reached by the same names as everything else's.
	if err := t.c.twin.shed(from, into, ".", &st); err != nil {
		return err
	}
	return attributes(from, into, ".", &st, t.c.keeps())
}

// into is told of each directory that is copied into, and what will be in it. Of what was copied ahead it removes what is
// not to be there. leave restores what was before.
func (t *liveCopy) into(to int, name string, names []string, buf []byte) (leave func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	at, here := t.at, t.here
	leave = func() { t.at, t.here = at, here }
	t.at, t.here = path.Join(at, name), nil
	if t.ahead || t.made == nil {
		return leave, nil
	}
	list, err := listDir(to, buf)
	if err != nil || len(list) == 0 {
		return leave, err
	}
	t.here = make(map[string]bool, len(list))
	for _, name := range list {
		t.here[name] = true
	}
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	for _, name := range list {
		if !wanted[name] {
			err = errors.Join(err, removeAll(to, name))
		}
	}
	return leave, err
}

// has says whether a directory was copied ahead: what is in it is looked at one by one.
func (t *liveCopy) has(name string, st *unix.Stat_t) bool {
	if t == nil || !t.here[name] {
		return false
	}
	of, ok := t.made[path.Join(t.at, name)]
	return ok && of.ino == st.Ino && of.dir == isDir(st)
}

// entry makes what the merged tree has not: whiteouts, and further names of a file. And it keeps what was
// copied ahead and is right.
func (t *liveCopy) entry(to int, name string, st *unix.Stat_t, whiteout bool) (done bool, err error) {
	t.mark = t.bytes
	dir, has := isDir(st), t.has(name, st)
	if has && !dir {
		has = before(st.Ctim, t.since) && !t.mapped[st.Ino]
	}
	switch {
	case t.ahead && t.mapped[st.Ino]:
		return true, nil
	case !has && t.here[name]:
		if err := removeAll(to, name); err != nil {
			return false, err
		}
	}
	switch {
	case dir:
		return false, nil
	case whiteout: // overlayfs makes one inode of many of them: more than can have names in the copy
		if !has {
			err = unix.Mknodat(to, name, unix.S_IFCHR, 0)
		}
		return true, err
	}
	if f := t.files[inode(st)]; st.Nlink > 1 && f != nil {
		return true, t.link(f, to, name, has)
	}
	if st.Nlink > 1 {
		t.files[inode(st)] = &linked{first: path.Join(t.at, name)}
	}
	if has {
		t.bytes += t.made[path.Join(t.at, name)].bytes
	}
	return has, nil
}

// link gives a file of the copy one more name, which it may have already.
func (t *liveCopy) link(f *linked, to int, name string, has bool) error {
	if has {
		if same, err := t.isFirst(f.first, to, name); same || err != nil {
			return err
		}
		// A directory that was moved has the first name now, and that was copied again.
		if err := unix.Unlinkat(to, name, 0); err != nil {
			return err
		}
	}
	return unix.Linkat(t.top, f.first, to, name, 0)
}

// isFirst says whether a name of the copy is the same file as the first one.
func (t *liveCopy) isFirst(first string, to int, name string) (bool, error) {
	var a, b unix.Stat_t
	err := errors.Join(unix.Fstatat(t.top, first, &a, unix.AT_SYMLINK_NOFOLLOW), unix.Fstatat(to, name, &b, unix.AT_SYMLINK_NOFOLLOW))
	return err == nil && a.Ino == b.Ino, err
}

// did is told of each entry that was copied, a directory before what is in it. Ahead, it says when to stop.
func (t *liveCopy) did(name string, st *unix.Stat_t) error {
	if t == nil || !t.ahead || t.mapped[st.Ino] {
		return nil
	}
	at, bytes := path.Join(t.at, name), t.bytes-t.mark
	if f := t.files[inode(st)]; f != nil && f.first != at {
		bytes = f.bytes
	} else if f != nil {
		f.bytes = bytes
	}
	t.made[at] = original{st.Ino, isDir(st), bytes}
	if t.room -= entryRoom; t.room < 0 || len(t.made) >= madeMax {
		return errEnough
	}
	return nil
}

// passes says whether the copy goes on without an entry: ahead it may have gone, or become another one.
func (t *liveCopy) passes(err error) bool {
	if t == nil || !t.ahead {
		return false
	}
	var no unix.Errno
	return errors.As(err, &no) && slices.Contains([]unix.Errno{unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.EEXIST, unix.ELOOP, unix.ESTALE, unix.ENODATA, unix.ERANGE}, no)
}

func (t *liveCopy) copied(n int) error {
	if t == nil {
		return nil
	}
	t.bytes += int64(n)
	if t.room -= int64(n); t.ahead && t.room < 0 {
		return errEnough
	}
	return nil
}

// shed takes attributes away that a directory had when it was copied ahead, and has not any more.
func (t *liveCopy) shed(from, to int, name string, st *unix.Stat_t) error {
	if t == nil || t.ahead || t.made == nil || before(st.Ctim, t.since) {
		return nil
	}
	had, err := xattrs(to, name, meansAnythingBelow)
	if err != nil || len(had) == 0 {
		return err
	}
	has, err := xattrs(from, name, meansAnythingBelow)
	for key := range had {
		if _, ok := has[key]; !ok && err == nil {
			err = unix.Lremovexattr(openat.Path(to)+"/"+name, key)
		}
	}
	return err
}

func inode(st *unix.Stat_t) [2]uint64 { return [2]uint64{uint64(st.Dev), st.Ino} }

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

func before(a, b unix.Timespec) bool {
	return a.Sec < b.Sec || a.Sec == b.Sec && a.Nsec < b.Nsec
}

const overlayMarks = "user.overlay."

// meansAnythingBelow is of attributes that have a meaning in a copy of an upper: all but those that an overlay would
// find its own inodes by.
func meansAnythingBelow(key string) bool {
	mark, is := strings.CutPrefix(key, overlayMarks)
	if is {
		return !slices.Contains([]string{"origin", "impure", "nlink", "uuid", "upper"}, mark)
	}
	return meansAnything(key)
}
