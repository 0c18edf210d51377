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

	"demesne/internal/fsutil"
)

// A LiveCopy is a copy of an overlay's upper for use as a lower of another overlay. Whiteouts and opaque
// directories keep their form, and hard links stay hard links.
//
//	t, err := NewLiveCopy(upper, kept, most)
//	… pause the sandbox; since is now, open lists the files it has mapped; resume it …
//	t.Ahead(since, open)
//	… pause it again …
//	err = t.Settle()
//	t.Close()
//
// [LiveCopy.Settle] alone makes the copy. [LiveCopy.Ahead] copies most of it before, while the sandbox writes;
// Settle then copies only changed files. Every change of a file's contents, names or metadata changes its ctime,
// which no process can set. So the copy of a file whose ctime is before since is right, whenever it was made. The
// inode number shows whether a name still leads to that file. Stores into mapped pages that are already writable
// and dirty are the one exception (page_mkwrite is called only for clean pages). Files that may have such pages are
// never copied ahead.
//
// If the file system can share contents (FICLONE: btrfs, xfs, bcachefs), the copy shares them.
type LiveCopy struct {
	upper int
	c     copier
}

// liveCopy is the state of a LiveCopy that its copier needs.
type liveCopy struct {
	top   int                   // of the copy
	at    string                // the directory below top that is being copied
	files map[[2]uint64]*linked // files with several names
	bytes int64                 // bytes that the copy does not share with the original
	mark  int64                 // value of bytes before this entry

	ahead  bool                // the sandbox writes meanwhile
	room   int64               // bytes that may still be copied ahead
	made   map[string]original // complete entries copied ahead
	mapped map[uint64]bool     // inodes that are not copied ahead
	since  unix.Timespec       // files changed later are copied again
	here   map[string]bool     // names in the directory that is being copied into
}

// linked is a file with several names.
type linked struct {
	first string // its first path in the copy
	bytes int64  // bytes copied
}

// original identifies the source of an entry. An inode number alone may have been reused.
type original struct {
	ino   uint64
	dir   bool
	bytes int64 // bytes copied
}

// Limits of copying ahead: the bytes that one entry counts in addition to its contents, and the number of entries
// remembered. Without them a sandbox could feed the copy for as long as it runs.
const (
	entryRoom = 4 << 10
	madeMax   = 1 << 18
)

// errEnough ends copying ahead.
var errEnough = errors.New("the copy ahead reached its limit")

// NewLiveCopy begins a copy of an upper that rootfs.KeptUpper opened. It makes the copy in the directory kept, from
// which rootfs.KeptUpper opens it for rootfs.Layout.Below. dir must stay open until Close. About most bytes are
// copied ahead, and no more.
func NewLiveCopy(dir, kept *os.File, most int64) (*LiveCopy, error) {
	at := int(kept.Fd())
	if err := fsutil.MkdirAt(at, "up", 0o700); err != nil {
		return nil, err
	}
	top, err := enter(at, "up")
	if err != nil {
		return nil, err
	}
	return &LiveCopy{int(dir.Fd()), copier{buf: make([]byte, 1<<20), twin: &liveCopy{top: top, room: most}}}, nil
}

// Close closes the LiveCopy's own descriptors, but none of the caller's files.
func (t *LiveCopy) Close() error { return unix.Close(t.c.twin.top) }

// Bytes returns the size of the copy in bytes, without those it shares with the original.
func (t *LiveCopy) Bytes() int64 { return t.c.twin.bytes }

// clockTick exceeds the lag of the coarse clock that stamps ctimes.
const clockTick = 20 * time.Millisecond

// Ahead copies what it can while the sandbox runs. At since the sandbox was paused, and had mapped the files whose
// paths inside it open lists. Ahead reports no errors: Settle copies the rest.
func (t *LiveCopy) Ahead(since time.Time, open []string) {
	w := t.c.twin
	w.ahead, w.made, w.mapped = true, map[string]original{}, map[uint64]bool{}
	w.since = unix.NsecToTimespec(since.Add(-clockTick).UnixNano())
	for _, name := range open {
		ino, err := t.inode(name)
		if err != nil {
			w.made = nil
			return // the file is unknown: copy everything while the sandbox is paused
		}
		w.mapped[ino] = true
	}
	_ = t.pass()
}

// inode finds a file by its path inside the sandbox.
func (t *LiveCopy) inode(name string) (uint64, error) {
	fd, err := fsutil.Openat2(t.upper, strings.TrimPrefix(name, "/"), &unix.OpenHow{
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

// Settle completes and corrects the copy. The sandbox must not write meanwhile.
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
	// Through the name "." the same functions reach its attributes as every other entry's.
	if err := t.c.twin.shed(from, into, ".", &st); err != nil {
		return err
	}
	return attributes(from, into, ".", &st, t.c.keeps())
}

// into is called for each directory that is copied into, with the names it will have. It removes entries copied
// ahead that have no such name. leave restores the previous state.
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

// has reports whether an entry was copied ahead. The entries of a directory are checked one by one.
func (t *liveCopy) has(name string, st *unix.Stat_t) bool {
	if t == nil || !t.here[name] {
		return false
	}
	of, ok := t.made[path.Join(t.at, name)]
	return ok && of.ino == st.Ino && of.dir == isDir(st)
}

// entry makes the entries that a merged tree lacks: whiteouts, and further names of a file. It also keeps entries
// that were copied ahead and are still right.
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
	case whiteout: // overlayfs shares one inode among many whiteouts, possibly more than the copy allows links
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

// link gives a file of the copy another name, which it may already have.
func (t *liveCopy) link(f *linked, to int, name string, has bool) error {
	if has {
		if same, err := t.isFirst(f.first, to, name); same || err != nil {
			return err
		}
		// A directory that was moved has the first name now, and that file was copied again.
		if err := unix.Unlinkat(to, name, 0); err != nil {
			return err
		}
	}
	return unix.Linkat(t.top, f.first, to, name, 0)
}

// isFirst reports whether a name of the copy is the same file as the first one.
func (t *liveCopy) isFirst(first string, to int, name string) (bool, error) {
	var a, b unix.Stat_t
	err := errors.Join(unix.Fstatat(t.top, first, &a, unix.AT_SYMLINK_NOFOLLOW), unix.Fstatat(to, name, &b, unix.AT_SYMLINK_NOFOLLOW))
	return err == nil && a.Ino == b.Ino, err
}

// did is called for each copied entry, and for a directory before its contents. While copying ahead it returns
// errEnough to stop.
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

// passes reports whether to skip an entry after an error: while copying ahead, the entry may have vanished or been
// replaced.
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

// shed removes attributes from a copied directory that the original has lost since it was copied ahead.
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
			err = unix.Lremovexattr(fsutil.FDPath(to)+"/"+name, key)
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

// meansAnythingBelow reports whether an attribute has a meaning in a copy of an upper. It excludes those by which
// an overlay finds its own inodes.
func meansAnythingBelow(key string) bool {
	mark, is := strings.CutPrefix(key, overlayMarks)
	if is {
		return !slices.Contains([]string{"origin", "impure", "nlink", "uuid", "upper"}, mark)
	}
	return meansAnything(key)
}
