package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Upper names the place of a sandbox's writes over an image. The first one that works is used.
type Upper string

// The values of Upper.
const (
	UpperTmpfs  Upper = "tmpfs"  // limited by Layout.Size
	UpperDisk   Upper = "disk"   // in Image.Scratch, without a limit of its own
	UpperCopied Upper = "copied" // no overlay: the image itself was copied, into Scratch or a tmpfs
	UpperKept   Upper = "kept"   // in Layout.Kept, without a limit of its own; tried before all others
)

// errNoScratch reports that there is no directory on a disk.
var errNoScratch = errors.New("no scratch directory")

// An overlay holds the parts of an overlay mount.
type overlay struct {
	lowers []int // the lowest first
	upper  dir   // has the directories up, work and shm
	mounts []int // detached mounts among them, attached only if the kernel requires it
	lacks  lacks
	reused bool // up comes from an earlier tree, which has set the attributes of /
}

// overlay makes the detached file system for / on the best upper that works here.
func (t *Tree) overlay(l Layout, i Image) (*plan, error) {
	o := &overlay{lacks: i.lacks}
	defer o.close()
	for _, f := range i.Lowers {
		o.lowers = append(o.lowers, int(f.Fd()))
	}
	if !i.Dir.zero() {
		fd, kind, err := i.Dir.open(attrBindRO)
		if err != nil {
			return nil, err
		}
		if i.Dir.Mount == nil {
			defer unix.Close(fd)
		}
		if kind != unix.S_IFDIR {
			return nil, fmt.Errorf("source %q: %w", i.Dir.name(), unix.ENOTDIR)
		}
		o.lowers, o.mounts = []int{fd}, []int{fd}
	}
	if l.Kept != nil {
		p, err := t.onKept(l, *o)
		if err == nil {
			return p, nil
		}
		t.KeptWhy = err
	}
	if len(o.lowers) == 0 {
		return t.empty(l)
	}
	p, err := t.onTmpfs(l, o)
	if err == nil {
		t.Upper = UpperTmpfs
		return p, nil
	}
	t.UpperWhy = err
	return t.onDisk(i, o)
}

// empty makes the tree of an image without layers (FROM scratch and nothing else), which overlayfs does not
// support.
func (t *Tree) empty(l Layout) (*plan, error) {
	p, err := newPlan("/", attrBind, sizes(l)...)
	if err != nil {
		return nil, err
	}
	t.Upper = UpperTmpfs
	return p, p.learnUmask("tmp")
}

func (o *overlay) close() {
	if o.upper.at != "" {
		unix.Close(o.upper.fd)
	}
}

// onTmpfs makes the overlay on a tmpfs, which uses no disk and leaves nothing behind.
func (t *Tree) onTmpfs(l Layout, o *overlay) (*plan, error) {
	fd, err := newFS("tmpfs", attrBind, append(sizes(l), option{"mode", "0700"})...)
	if err != nil {
		return nil, err
	}
	o.upper = dir{fd: fd, at: "tmpfs "}
	o.mounts = append(o.mounts, fd)
	if o.lacks.tmpfs {
		return nil, unix.EOPNOTSUPP
	}
	return t.over(o)
}

// onDisk is the fallback if a tmpfs cannot be an upper: before Linux 6.6 it has no user.* attributes. If no overlay
// works at all, the image is copied.
func (t *Tree) onDisk(i Image, o *overlay) (*plan, error) {
	scratch, err := "", errNoScratch
	if i.Scratch != nil {
		scratch, err = i.Scratch()
	}
	switch {
	case err != nil && (o.upper.at == "" || len(i.Lowers) == 0):
		return nil, errors.Join(t.UpperWhy, err)
	case err != nil:
		return t.copied(o, err) // to the tmpfs made before
	}
	o.mounts = slices.DeleteFunc(o.mounts, func(fd int) bool { return fd == o.upper.fd })
	o.close()
	o.upper = dir{}
	fd, err := unix.Open(scratch, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open scratch: %w", err)
	}
	o.upper = dir{fd: fd, at: "scratch "}
	p, err := t.over(o)
	switch {
	case err != nil && len(i.Lowers) == 0: // not copied: a directory may be as large as the whole machine
		return nil, errors.Join(t.UpperWhy, err)
	case err != nil:
		return t.copied(o, err)
	}
	t.Upper = UpperDisk
	p.shm = nil
	return p, nil
}

// over makes the overlay if the upper can store overlayfs's attributes. Without them the mount would succeed too,
// but renames and removals of lower files would fail with EIO.
func (t *Tree) over(o *overlay) (*plan, error) {
	fd, err := t.stack(o)
	if err != nil {
		return nil, err
	}
	shm, err := unix.FcntlInt(uintptr(o.upper.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	p := &plan{dir: dir{fd: fd, at: "/", umask: o.upper.umask}, shm: &place{shm, "shm"}, held: []int{shm}}
	return p, nil
}

// stack returns the detached mount of the overlay.
func (t *Tree) stack(o *overlay) (int, error) {
	if o.lacks.overlay {
		return -1, unix.ENODEV
	}
	if err := o.prepare(); err != nil {
		return -1, err
	}
	up := fsutil.FDPath(o.upper.fd) + "/up"
	if err := unix.Setxattr(up, "user.overlay.demesne", []byte("y"), 0); err != nil {
		return -1, fmt.Errorf("set attribute on %sup: %w", o.upper.at, err)
	}
	if err := unix.Removexattr(up, "user.overlay.demesne"); err != nil {
		return -1, fmt.Errorf("remove attribute on %sup: %w", o.upper.at, err)
	}
	fd, err := o.mount()
	if err != nil {
		var olderr error
		if fd, olderr = t.mountOld(o); olderr != nil {
			return -1, errors.Join(err, olderr)
		}
	}
	return fd, nil
}

// prepare makes the directories of the upper. The root of the overlay shows the attributes of up, so up gets those
// of the highest layer.
func (o *overlay) prepare() error {
	if err := o.upper.learnUmask("shm"); err != nil {
		return err
	}
	for _, name := range []string{"up", "work"} {
		if err := o.upper.mkdir(name, 0o755); err != nil {
			return err
		}
	}
	if o.reused {
		return nil
	}
	return o.upper.likeRoot("up", o.lowers[len(o.lowers)-1])
}

// likeRoot gives a directory the owner and mode that an image has for /. It adds read and search permission, as no
// program could run in a root that its own uid 0 cannot search.
func (d dir) likeRoot(name string, lower int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(lower, "", &st, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("stat layer: %w", err)
	}
	if st.Uid != nobodyID && st.Gid != nobodyID {
		if err := d.own(name, User{st.Uid, st.Gid}); err != nil {
			return err
		}
	}
	return d.chmod(name, st.Mode&0o1777|0o555)
}

// mount uses the interface of Linux 6.15: detached mounts as layers, and O_PATH descriptors.
func (o *overlay) mount() (int, error) {
	if o.lacks.detached {
		return -1, unix.EINVAL
	}
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount overlay: fsopen: %w", err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigSetFlag(ctx, "userxattr"); err != nil {
		return -1, fmt.Errorf("mount overlay: set userxattr: %w", err)
	}
	for n := range o.lowers { // the first is the highest
		if err := unix.FsconfigSetFd(ctx, "lowerdir+", o.lowers[len(o.lowers)-1-n]); err != nil {
			return -1, fmt.Errorf("mount overlay: set lowerdir+: %w", err)
		}
	}
	for key, name := range map[string]string{"upperdir": "up", "workdir": "work"} {
		if err := o.setDir(ctx, key, name); err != nil {
			return -1, fmt.Errorf("mount overlay: set %s: %w", key, err)
		}
	}
	return finishFS("overlay", ctx, attrBind)
}

func (o *overlay) setDir(ctx int, key, name string) error {
	fd, err := unix.Openat(o.upper.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.FsconfigSetFd(ctx, key, fd)
}

// mountOld does the same with mount(2). Every layer must be attached for that, and all options must fit on a page,
// which limits it to some 200 layers. It needs Linux 5.11.
func (t *Tree) mountOld(o *overlay) (int, error) {
	if err := t.attachAside(o); err != nil {
		return -1, err
	}
	var lower []string
	for n := range o.lowers {
		lower = append(lower, fsutil.FDPath(o.lowers[len(o.lowers)-1-n]))
	}
	up := fsutil.FDPath(o.upper.fd)
	data := "userxattr,lowerdir=" + strings.Join(lower, ":") + ",upperdir=" + up + "/up,workdir=" + up + "/work"
	if err := unix.Mount("overlay", t.Root, "overlay", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return -1, fmt.Errorf("mount overlay: %w", err)
	}
	fd, err := clone(unix.AT_FDCWD, t.Root, attrBind)
	return fd, errors.Join(err, unix.Unmount(t.Root, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
}

// attachAside attaches the detached mounts, until [Tree.Detach].
func (t *Tree) attachAside(o *overlay) error {
	for _, fd := range o.mounts {
		at := filepath.Join(filepath.Dir(t.Root), "aside"+strconv.Itoa(len(t.aside)))
		if err := os.Mkdir(at, 0o700); err != nil {
			return err
		}
		t.aside = append(t.aside, at)
		if err := move(fd, unix.AT_FDCWD, at); err != nil {
			return fmt.Errorf("mount layer: %w", err)
		}
	}
	o.mounts = nil
	return nil
}
