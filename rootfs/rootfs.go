// Package rootfs builds the file tree that a sandbox sees. Package upper reads back what the sandbox wrote.
//
// [MountHost] makes the tree of the image "host". It has a tmpfs at /, and the host's /usr read-only with the
// host's own /bin and /lib beside it. A table ([etcRows]) names the entries of the host's /etc that it shows. It
// also has inputs below /in, and a small /dev. Files not named do not exist inside: no /home, /run, /var, /root or
// /opt of the host, no shadow file, no ssh or TLS key.
//
// [MountImage] makes the tree of an image: an overlay of its unpacked layers, or of a directory, with an upper that
// is discarded at the end. /in, /out, /workspace, /dev and /sys are as above.
//
// With [Layout.Kept] either tree is an overlay with a persistent upper on a disk, from which a later tree can be
// made. An upper that a sandbox wrote is as untrusted as an image, and is handled the same way.
//
//	Dir/root  nosuid nodev            the sandbox's /; everything but /proc and /dev
//	Dir/dev   tmpfs, read-only        the sandbox's /dev; bind it there recursively
//
// An image is untrusted. Files are made in its tree before any of its programs run, and below descriptors. The
// kernel alone follows links of the image, inside the tree's own root (openat2, RESOLVE_IN_ROOT). At a mount point,
// a directory replaces any other kind of file.
//
// All work goes through descriptors: fsopen and open_tree make mounts, and move_mount moves them below descriptors
// (mount_setattr needs Linux 5.12). The package changes neither the working directory nor the umask, so many
// goroutines may make trees at the same time. The caller must be uid 0 of a user namespace that owns its mount
// namespace.
//
// The guarantees of the tree rest on the kernel. Read-only and nodev are attributes of the mounts. To hold against
// uid 0 of the sandbox they must be locked: the sandbox must run in a user namespace of its own below this one. The package
// does not make namespaces or drop privileges.
package rootfs

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Source is a file or directory of the host, or a socket. The zero Source means no source.
type Source struct {
	// Path is opened once in this mount namespace. Its last component must not be a link.
	Path string
	// Same, if given, must be the same file as Path: the one the caller checked.
	Same *os.File
	// Mount is a detached mount, used instead of Path. It is moved, so it can be used only once. The caller still
	// closes it.
	Mount *os.File
	// Socket requires a unix socket. Without Socket, sockets are refused, as a read-only mount does not prevent
	// connecting to one (unix(7)).
	Socket bool
}

func (s Source) zero() bool { return s.Path == "" && s.Mount == nil }

// A Bind is a source and its name in the sandbox.
type Bind struct {
	Name   string // one component of a path
	Source Source
}

// User holds the ids that commands run as.
type User struct{ UID, GID uint32 }

// Layout describes the parts of a tree.
type Layout struct {
	Dir       string  // an empty directory, in which Dir/root and Dir/dev are made
	Size      int64   // limit in bytes of the tmpfs at / (with /tmp, /dev/shm, …); ≤ 0: no limit
	Inodes    int64   // limit of files on it; ≤ 0: no limit
	Hostname  string  // "" means "sandbox"
	User      User    // gets a line in passwd and owns its home and scratch
	Init      Source  // program, read-only at /dev/.demesne-init
	Inputs    []Bind  // read-only at /in/NAME
	Out       Source  // read-write at /out; zero: a directory on /
	Workspace Source  // read-write at /workspace; zero: a directory on /
	Mounts    []Mount // in order; later ones hide earlier ones
	Tmpfs     []Tmpfs
	Hosts     []HostLine // further lines of /etc/hosts

	// Aside, if given, is a name on / below which in, out and workspace are, so that an image's own directories of
	// these names show. Only [MountImage] supports it.
	Aside string

	NameServer netip.Addr // for resolv.conf; zero: no name server
	Trust      *Trust     // nil: only the authorities that the tree trusts anyway

	// Kept, if given, is a directory on a disk for the sandbox's writes, empty or as an earlier tree left it. If
	// overlayfs cannot use it, Tree.Upper is not UpperKept and KeptWhy gives the reason.
	Kept *os.File
	// Below holds the uppers of earlier sandboxes over the same image or host, the earliest first. It is used only
	// with Kept.
	Below []*os.File
}

// A Tree is a mounted tree. Its methods may be called from any goroutine.
type Tree struct {
	Root string // for the sandbox's /
	Dev  string // for its /dev, to be bound recursively

	CertFile string // see Trust; "" without one

	// Upper and KeptWhy are set for every tree, the rest for an image's tree only.
	Upper    Upper         // where writes go
	UpperWhy error         // why no better place was used
	KeptWhy  error         // why Layout.Kept was not used
	Stacked  time.Duration // time to stack the layers, without the mounts inside them
	Users    Users         // the image's, before any command ran
	Account  Account
	Unmapped *User // the image's user, for whom Account stands in; nil if that one is mapped
	Mounted  int   // how many of Layout.Mounts are mounted, with attributes that were read back

	aside []string            // other directories with mounts that the tree needs until Detach
	shown bool                // see Show
	views map[string]*os.File // see OpenDir
	pts   *os.File            // O_PATH, the devpts in Dev; OpenPTY must work after Detach
}

// MountHost makes the tree of the image "host" in l.Dir. On an error it leaves nothing behind, except that it may
// have consumed a detached mount among the sources.
func MountHost(l Layout) (*Tree, error) { return mountTree(l, (*Tree).mountHost) }

// mountTree makes the directories and mounts both trees on them.
func mountTree(l Layout, mountRoot func(*Tree, Layout) (root *plan, err error)) (*Tree, error) {
	l.Hostname = cmp.Or(l.Hostname, "sandbox")
	if err := CheckHostname(l.Hostname); err != nil {
		return nil, err
	}
	t := &Tree{Root: filepath.Join(l.Dir, "root"), Dev: filepath.Join(l.Dir, "dev"), views: map[string]*os.File{}}
	if err := os.Mkdir(t.Root, 0o755); err != nil {
		return nil, fmt.Errorf("make root: %w", err)
	}
	if err := os.Mkdir(t.Dev, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make dev: %w", err), os.Remove(t.Root))
	}
	err := t.mount(l, mountRoot)
	runtime.KeepAlive(l) // its files were passed on as descriptor numbers
	if err != nil {
		return nil, errors.Join(err, t.Unmount())
	}
	return t, nil
}

// mount makes both trees. Each is built as data first (files, and a list of moves) and then attached. They are made
// one after the other: concurrently they would contend in the kernel and gain nothing.
func (t *Tree) mount(l Layout, mountRoot func(*Tree, Layout) (*plan, error)) error {
	root, err := mountRoot(t, l)
	defer root.close()
	if err != nil {
		return err
	}
	dev, err := mountDev(t.Dev, l.Init)
	defer dev.close()
	if err != nil {
		return err
	}
	if err := dev.shareShm(root, l); err != nil {
		return err
	}
	pts, err := unix.Openat(dev.fd, "pts", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/pts: %w", err)
	}
	t.pts = os.NewFile(uintptr(pts), filepath.Join(t.Dev, "pts"))
	return nil
}

// MountSys moves a detached read-only sysfs mount of the sandbox's network namespace to /sys; without it /sys stays
// empty. It is a separate step so that the namespace and the tree can be made at the same time. Call it only before
// Detach.
func (t *Tree) MountSys(sysfs *os.File) error {
	root, err := t.openRoot()
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err = verify(int(sysfs.Fd()), attrBindRO|unix.MOUNT_ATTR_NOEXEC); err == nil {
		err = move(int(sysfs.Fd()), root, "sys")
	}
	runtime.KeepAlive(sysfs)
	if err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	return nil
}

// Unmount detaches the tree and releases this process's references to it. Files still open in it stay usable until
// they are closed. It may be called again.
func (t *Tree) Unmount() error {
	if t.pts != nil {
		t.pts.Close() // closing an O_PATH descriptor loses no data
	}
	for _, f := range t.views {
		f.Close()
	}
	return t.Detach()
}

// Detach takes both trees out of this mount namespace and removes their directories. A sandbox that already has its
// own mount namespace keeps them, and OpenPTY still works. Call Detach as soon as the sandbox's first program runs,
// to keep the next start fast. A new mount namespace copies every mount of this one: 2.5 ms with 100 trees, 0.04 ms
// with none. It may be called again.
func (t *Tree) Detach() error {
	var errs []error
	if t.shown { // otherwise the sandbox would lose them
		errs = append(errs, t.hide())
		t.shown = false
	}
	dirs := append([]string{t.Dev, t.Root}, t.aside...)
	for _, dir := range dirs {
		// EINVAL: not a mount point (never was one, or no longer is).
		err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && err != unix.EINVAL && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("unmount %q: %w", dir, err))
		}
	}
	for _, dir := range dirs {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT {
			errs = append(errs, fmt.Errorf("remove %q: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
