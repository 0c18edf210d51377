package upper

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// CopyLayer copies a layer over a directory that this program made, merged as overlayfs would. Hard links become
// separate files. A layer of more than copyDepth levels is an error, and remains partly copied.
func CopyLayer(lower, to int) error {
	from, err := enter(lower, ".")
	if err != nil {
		return err
	}
	defer unix.Close(from)
	c := copier{buf: make([]byte, 1<<20)}
	return c.dir(from, to, "", 0)
}

// CopyOwn is CopyLayer for a copy that belongs to this process's user, as the files in from need not. It leaves out what
// would give a right: set-user-ID bits and capabilities of programs. Other processes may write to from.
func CopyOwn(from, to int) error {
	fd, err := enter(from, ".")
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	c := copier{buf: make([]byte, 1<<20), own: true}
	return c.dir(fd, to, "", 0)
}

// CopyOwnFile is CopyOwn for an open file, of which it makes name in to.
func CopyOwnFile(from, to int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	c := copier{buf: make([]byte, 1<<20)}
	if err := c.contents(from, out, st.Size); err != nil {
		return err
	}
	return unix.Fchmod(out, st.Mode&0o777)
}

// copyDepth bounds how deep a layer may be: each level takes two descriptors.
const copyDepth = 256

// A copier copies one layer over an existing tree.
type copier struct {
	buf  []byte
	list [64 << 10]byte
	twin *liveCopy // nil: the result is the merged tree
	own  bool      // see CopyOwn
}

// dir copies the directory from, which is called name, over to. No other process may write to to, nor to from
// unless a live copy runs ahead.
func (c *copier) dir(from, to int, name string, depth int) error {
	if depth > copyDepth {
		return errors.New("too deep")
	}
	names, err := listDir(from, c.list[:])
	if err != nil {
		return err
	}
	leave, err := c.twin.into(to, name, names, c.list[:])
	defer leave()
	if err != nil {
		return err
	}
	for _, name := range names {
		err := c.entry(from, to, name, depth)
		if c.twin.passes(err) {
			err = removeAll(to, name)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	return nil
}

// listDir returns the names in a directory.
func listDir(fd int, buf []byte) (names []string, err error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if n == 0 || err != nil {
			return names, err
		}
		for _, e := range fsutil.ParseDirents(buf[:n]) {
			names = append(names, e.Name)
		}
	}
}

// entry copies one name to to.
func (c *copier) entry(from, to int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	whiteout := kind == unix.S_IFCHR && st.Rdev == 0
	if c.twin != nil {
		done, err := c.twin.entry(to, name, &st, whiteout)
		if err != nil {
			return err
		}
		if done {
			return c.twin.did(name, &st)
		}
	} else if kind != unix.S_IFDIR || opaque(from, name) {
		if err := removeAll(to, name); err != nil {
			return err
		}
	}
	var err error
	switch {
	case whiteout:
		return nil
	case kind == unix.S_IFDIR:
		return c.subdir(from, to, name, &st, depth)
	case kind == unix.S_IFREG:
		err = c.file(from, to, name)
	case kind == unix.S_IFLNK:
		var target string
		if target, err = fsutil.ReadlinkAt(from, name); err == nil {
			err = unix.Symlinkat(target, to, name)
		}
	case kind == unix.S_IFIFO || kind == unix.S_IFSOCK:
		err = unix.Mknodat(to, name, kind|0o600, 0)
	default:
		return nil // a device, useless on a nodev mount
	}
	if err != nil {
		return err
	}
	if err := c.attributes(from, to, name, &st); err != nil {
		return err
	}
	return c.twin.did(name, &st)
}

func (c *copier) subdir(from, to int, name string, st *unix.Stat_t, depth int) error {
	if !c.twin.has(name, st) {
		if err := fsutil.MkdirAt(to, name, 0o700); err != nil {
			return err
		}
	}
	if err := c.twin.did(name, st); err != nil {
		return err
	}
	sub, err := enter(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(sub)
	into, err := enter(to, name)
	if err != nil {
		return err
	}
	defer unix.Close(into)
	if err := c.dir(sub, into, name, depth+1); err != nil {
		return err
	}
	if err := c.twin.shed(from, to, name, st); err != nil {
		return err
	}
	return c.attributes(from, to, name, st)
}

// attributes copies the attributes of a file that the copy keeps.
func (c *copier) attributes(from, to int, name string, st *unix.Stat_t) error {
	if !c.own {
		return attributes(from, to, name, st, c.keeps())
	}
	mine := *st
	mine.Uid, mine.Gid, mine.Mode = uint32(unix.Geteuid()), uint32(unix.Getegid()), st.Mode&^(unix.S_ISUID|unix.S_ISGID)
	return attributes(from, to, name, &mine, func(key string) bool { return key != "security.capability" && meansAnything(key) })
}

// file copies the contents of a file, or shares them if the file system supports that.
func (c *copier) file(from, to int, name string) error {
	in, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	var st unix.Stat_t
	if err := unix.Fstat(in, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return cmp.Or(err, error(unix.ESTALE)) // the name leads to another file now
	}
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	return c.contents(in, out, st.Size)
}

// contents copies the first size bytes of an open file to an empty one.
func (c *copier) contents(in, out int, size int64) error {
	if unix.IoctlFileClone(out, in) == nil {
		return nil
	}
	if err := unix.Ftruncate(out, size); err != nil {
		return err
	}
	for at := int64(0); at < size; {
		// Holes stay holes. A file without holes is one piece of data.
		begin, err := unix.Seek(in, at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(in, begin, unix.SEEK_HOLE); err != nil {
			return err
		}
		if err := c.piece(in, out, begin, min(at, size)); err != nil {
			return err
		}
	}
	return nil
}

// piece copies the bytes between two offsets.
func (c *copier) piece(in, out int, at, end int64) error {
	for at < end {
		n, err := unix.Pread(in, c.buf[:min(int64(len(c.buf)), end-at)], at)
		if n == 0 || err != nil {
			return err
		}
		for b := c.buf[:n]; len(b) > 0; {
			n, err := unix.Pwrite(out, b, at)
			if err != nil {
				return err
			}
			b, at = b[n:], at+int64(n)
		}
		if err := c.twin.copied(n); err != nil {
			return err
		}
	}
	return nil
}

// keeps returns a function that selects the attributes to copy.
func (c *copier) keeps() func(key string) bool {
	if c.twin != nil {
		return meansAnythingBelow
	}
	return meansAnything
}

// attributes copies owner, extended attributes, mode and times. The owner goes first, as changing it clears mode
// bits and capabilities.
func attributes(from, to int, name string, st *unix.Stat_t, keep func(key string) bool) error {
	err := unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && err != unix.EINVAL && !(err == unix.EPERM && st.Uid == overflowID) { // not mapped
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := copyXattrs(from, to, name, keep); err != nil {
			return err
		}
		if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
			return err
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	return unix.UtimesNanoAt(to, name, times, unix.AT_SYMLINK_NOFOLLOW)
}

// opaque reports whether a directory of a layer hides the ones below it.
func opaque(from int, name string) bool {
	var value [2]byte
	n, err := unix.Lgetxattr(fsutil.FDPath(from)+"/"+name, "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

// meansAnything reports whether an attribute has a meaning outside an overlay.
func meansAnything(key string) bool {
	return key == "security.capability" || strings.HasPrefix(key, "user.") && !strings.HasPrefix(key, overlayMarks)
}

// copyXattrs copies the attributes that keep selects, if the copy can hold them.
func copyXattrs(from, to int, name string, keep func(key string) bool) error {
	found, err := xattrs(from, name, keep)
	if err != nil {
		return err
	}
	for key, value := range found {
		err := unix.Lsetxattr(fsutil.FDPath(to)+"/"+name, key, []byte(value), 0)
		if err != nil && err != unix.EOPNOTSUPP && err != unix.EPERM {
			return err
		}
	}
	return nil
}

// xattrs reads the attributes that keep selects; it returns nil if it finds no such attribute.
func xattrs(at int, name string, keep func(key string) bool) (found map[string]string, err error) {
	return xattrsAt(at, name).read(keep)
}

// xattrCalls are the system calls for the attributes of one file.
type xattrCalls struct {
	list func(to []byte) (int, error)
	get  func(key string, to []byte) (int, error)
}

// xattrsAt returns the calls for a name, which may be a link.
func xattrsAt(at int, name string) xattrCalls {
	file := fsutil.FDPath(at) + "/" + name
	return xattrCalls{
		func(to []byte) (int, error) { return unix.Llistxattr(file, to) },
		func(key string, to []byte) (int, error) { return unix.Lgetxattr(file, key, to) },
	}
}

// xattrsOf returns the calls for an open file, which take less time.
func xattrsOf(fd int) xattrCalls {
	return xattrCalls{
		func(to []byte) (int, error) { return unix.Flistxattr(fd, to) },
		func(key string, to []byte) (int, error) { return unix.Fgetxattr(fd, key, to) },
	}
}

func (x xattrCalls) read(keep func(key string) bool) (found map[string]string, err error) {
	n, err := x.list(nil)
	if err == unix.EOPNOTSUPP || n == 0 && err == nil {
		return nil, nil
	}
	const most = 64 << 10
	list := make([]byte, min(n+1<<10, most)) // most have one short name, and no value that is kept
	if err == nil {
		n, err = x.list(list)
	}
	if err != nil {
		return nil, err
	}
	var value []byte
	for _, key := range bytes.Split(list[:n], []byte{0}) {
		key := string(key)
		if !keep(key) {
			continue
		}
		if value == nil {
			value = make([]byte, most)
		}
		n, err := x.get(key, value)
		if err != nil {
			return nil, err
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = string(value[:n])
	}
	return found, nil
}

// removeAll removes a file or a tree; it ignores a missing one.
func removeAll(at int, name string) error {
	if _, err := fsutil.RemoveAll(at, name); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
