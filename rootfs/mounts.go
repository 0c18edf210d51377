package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// A Mount is a file or directory of the host at a path of its own. Only a directory can be writable.
//
// The names above Target that are missing are made in the tree, but never in another file system: a mount point
// inside a mount of the host must exist there. A link at any of these names is refused.
type Mount struct {
	Source   Source
	Target   string // absolute and clean
	ReadOnly bool
	// Upper, if given, takes the changes: Target shows an overlay of Source, which stays as it is.
	Upper Source
}

// ErrNoPlace reports a mount point that is missing below a mount of the host.
var ErrNoPlace = errors.New("the mount point does not exist, and would have to be made on the host")

// mounter mounts Layout.Mounts in an attached tree.
type mounter struct {
	root dir
	own  []uint64 // ids of the mounts in which mount points may be made
}

// mountAll mounts l.Mounts in order. own are the tree's own mounts; the first is its root.
func (t *Tree) mountAll(l Layout, umask uint32, own ...int) error {
	if len(l.Mounts) == 0 && len(l.Tmpfs) == 0 {
		return nil
	}
	m := mounter{root: dir{fd: own[0], at: "/", umask: umask}}
	for _, fd := range own {
		id, err := mountID(fd)
		if err != nil {
			return err
		}
		m.own = append(m.own, id)
	}
	for name, s := range map[string]Source{"out": l.Out, "workspace": l.Workspace} {
		if s.zero() {
			continue
		}
		if err := t.keepView(own[0], l.aside(name), "/"+l.aside(name)); err != nil {
			return err
		}
	}
	if err := m.mountTmpfs(l, false); err != nil {
		return err
	}
	for _, b := range l.Mounts {
		if err := t.mountOne(m, b); err != nil {
			return fmt.Errorf("mount %q: %w", b.Target, err)
		}
	}
	return m.mountTmpfs(l, true)
}

func (t *Tree) mountOne(m mounter, b Mount) error {
	if !b.Upper.zero() {
		return t.mountOver(m, b)
	}
	attrs := uint64(attrBind)
	if b.ReadOnly {
		attrs = attrBindRO
	}
	fd, kind, err := b.Source.open(attrs)
	if err != nil {
		return err
	}
	if b.Source.Mount == nil {
		defer unix.Close(fd)
	}
	if kind != unix.S_IFDIR && !b.ReadOnly {
		return fmt.Errorf("source %q: only a directory can be writable", b.Source.name())
	}
	if err := m.attach(fd, b.Target, kind, attrs); err != nil {
		return err
	}
	t.Mounted++
	if !b.ReadOnly {
		return t.keepView(fd, "", b.Target)
	}
	if kind != unix.S_IFDIR {
		return nil
	}
	c := cover{left: specialMost}
	return c.tree(fd)
}

// attach moves the detached mount fd to its mount point, and checks its attributes.
func (m mounter) attach(fd int, target string, kind uint32, attrs uint64) error {
	at, err := m.place(target, kind, attrs == attrBindRO)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.MoveMount(fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return verify(fd, attrs)
}

// mountOver mounts an overlay of b.Source. [Tree.OpenDir] opens the upper for its target.
func (t *Tree) mountOver(m mounter, b Mount) error {
	lower, kind, err := b.Source.open(attrBindRO)
	if err != nil {
		return err
	}
	if b.Source.Mount == nil {
		defer unix.Close(lower)
	}
	if kind != unix.S_IFDIR {
		return fmt.Errorf("source %q: %w", b.Source.name(), unix.ENOTDIR)
	}
	upper, _, err := b.Upper.open(attrBind)
	if err != nil {
		return err
	}
	if b.Upper.Mount == nil {
		defer unix.Close(upper)
	}
	o := &overlay{lowers: []int{lower}, mounts: []int{lower, upper}, upper: dir{fd: upper, at: "changes "}, reused: hasDir(upper, "up")}
	if err := unix.Unlinkat(upper, "shm", unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT { // see onKept
		return fmt.Errorf("prepare changes: %w", err)
	}
	fd, err := t.stack(o)
	if err != nil {
		return fmt.Errorf("keep changes apart: %w", err)
	}
	defer unix.Close(fd)
	if err := m.attach(fd, b.Target, kind, attrBind); err != nil {
		return err
	}
	t.Mounted++
	view, err := unix.Openat(upper, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open changes: %w", err)
	}
	t.setView(b.Target, view)
	return nil
}

// place opens the mount point of a target, and makes it if it is missing. With pin, each directory between the root
// of a writable mount of the host and the target is mounted over itself. A mount point cannot be renamed or removed:
// without that, a process inside could rename .git, take the protected .git/hooks away with it, and make another .git.
func (m mounter) place(target string, kind uint32, pin bool) (int, error) {
	names := strings.Split(strings.TrimPrefix(target, "/"), "/")
	at, err := unix.Openat(m.root.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for i, name := range names {
		last := i == len(names)-1
		want := uint32(unix.S_IFDIR)
		if last {
			want = kind
		}
		next, err := m.step(at, name, want)
		if err == nil && pin && !last {
			next, err = m.pinned(at, name, next)
		}
		unix.Close(at)
		if err != nil {
			return -1, fmt.Errorf("open mount point %q: %w", "/"+strings.Join(names[:i+1], "/"), err)
		}
		at = next
	}
	return at, nil
}

// step opens one name of the way to a mount point, on top of what is mounted there, without following a link.
func (m mounter) step(at int, name string, kind uint32) (int, error) {
	if !plainName(name) {
		return -1, errors.New("not a plain file name")
	}
	fd, err := openPlace(at, name)
	if err == unix.ENOENT {
		if err := m.make(at, name, kind); err != nil {
			return -1, err
		}
		fd, err = openPlace(at, name)
	}
	if err != nil {
		return -1, err
	}
	if err := checkPlace(fd, kind); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// checkPlace refuses a file that a source of the kind cannot cover. A link can be opened and covered like a file: it
// is refused, too.
func checkPlace(fd int, kind uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch is := st.Mode & unix.S_IFMT; {
	case is == unix.S_IFLNK:
		return unix.ELOOP
	case kind == unix.S_IFDIR && is != unix.S_IFDIR:
		return unix.ENOTDIR
	case kind != unix.S_IFDIR && is == unix.S_IFDIR:
		return unix.EISDIR
	}
	return nil
}

func openPlace(at int, name string) (int, error) {
	return fsutil.Openat2(at, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}

// make makes a mount point in one of the tree's own mounts.
func (m mounter) make(at int, name string, kind uint32) error {
	id, err := mountID(at)
	if err != nil {
		return err
	}
	if !slices.Contains(m.own, id) {
		return ErrNoPlace
	}
	d := dir{fd: at, umask: m.root.umask}
	if kind == unix.S_IFDIR {
		return d.mkdir(name, 0o755)
	}
	return d.write(name, nil)
}

// pinned mounts the directory fd, which is name in at, over itself if it lies inside a writable mount of the host.
// It returns a descriptor of what is there then, and closes fd.
func (m mounter) pinned(at int, name string, fd int) (int, error) {
	outer, err1 := mountID(at)
	inner, err2 := mountID(fd)
	var fs unix.Statfs_t
	if err := errors.Join(err1, err2, unix.Fstatfs(fd, &fs)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	if inner != outer || slices.Contains(m.own, outer) || fs.Flags&unix.ST_RDONLY != 0 {
		return fd, nil
	}
	defer unix.Close(fd)
	self, err := clone(fd, "", attrBind)
	if err != nil {
		return -1, err
	}
	defer unix.Close(self)
	if err := unix.MoveMount(self, "", fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return -1, fmt.Errorf("move_mount: %w", err)
	}
	top, err := openPlace(at, name)
	if err != nil {
		return -1, err
	}
	if id, err := mountID(top); err != nil || id == outer {
		unix.Close(top)
		return -1, errors.Join(err, errChanged)
	}
	return top, nil
}

// mountID returns the id of the mount that an open file belongs to.
func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return 0, fmt.Errorf("read mount id: %w", err)
	}
	return st.Mnt_id, nil
}

// keepView opens the mounted directory name in at for [Tree.OpenDir], through a copy of its mount. Mounts that are
// added below the directory later do not appear in the copy.
func (t *Tree) keepView(at int, name, target string) error {
	mount, err := clone(at, name, attrBind)
	if err != nil {
		return err
	}
	defer unix.Close(mount)
	fd, err := unix.Openat(mount, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", target, err)
	}
	t.setView(target, fd)
	return nil
}

func (t *Tree) setView(target string, fd int) {
	t.views[target].Close() // nil: no earlier mount had this target
	t.views[target] = os.NewFile(uintptr(fd), filepath.Join(t.Root, target))
}

// OpenDir opens a directory of the host that the sandbox may write to, by its path inside: /out, /workspace, or the
// Target of a Mount. Files that other mounts hide inside are visible in it. For a Mount with an Upper it is that
// directory. The second call for a path may fail.
func (t *Tree) OpenDir(target string) (*os.File, error) {
	if f := t.views[target]; f != nil {
		delete(t.views, target)
		return f, nil
	}
	return os.Open(filepath.Join(t.Root, target))
}
