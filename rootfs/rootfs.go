// Package rootfs makes the tree of files that a sandbox sees. What the sandbox wrote is read back by package wrote.
//
// [MountHost] makes the tree of the image "host": a tmpfs at /, the host's /usr read-only with the
// host's own /bin and /lib beside it, an /etc of which every line is named in a table ([etcRows]),
// inputs below /in, and a small /dev. What is not named does not exist inside: no /home, no /run,
// no /var, no /root, no /opt of the host, no shadow file, no ssh or TLS key.
//
// [MountImage] makes the tree of an image: an overlay of its unpacked layers, or of a directory, and
// of an upper that is thrown away. /in, /out, /workspace, /dev and /sys are as above.
//
// With [Layout.Kept] either tree is an overlay whose upper is on a disk and stays there, for the next tree
// made of it. What a sandbox left in an upper is as hostile as an image, and treated alike.
//
//	Dir/root  nosuid nodev            the sandbox's /; everything but /proc and /dev
//	Dir/dev   tmpfs, read-only        the sandbox's /dev; bind it there recursively
//
// An image is hostile. What is made in its tree is made before anything of it runs, below
// descriptors, and no link of the image is followed but by the kernel inside the tree's own root
// (openat2, RESOLVE_IN_ROOT). What is in the way of a mount and is no directory gives way to one.
//
// Everything is done on descriptors: mounts are made with fsopen and open_tree, and moved below
// descriptors with move_mount (which asks for kernel 5.12). Nothing changes
// the working directory or the umask, so many trees may be made at once from many goroutines.
// The caller must be uid 0 of a user namespace that owns its mount namespace.
//
// What the tree promises rests on the kernel: read-only and nodev are attributes of the mounts, and
// they hold against uid 0 of the sandbox only when the sandbox runs in a user namespace of its own
// below this one, which locks them. The package makes no namespace and drops no privilege.
package rootfs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A Source is a file or directory of the host, or a socket. The zero Source means there is none.
type Source struct {
	// Path is opened once in this mount namespace. Its last component must not be a link.
	Path string
	// Same, if given, must be the same file as Path: the one the caller looked at.
	Same *os.File
	// Mount is a detached mount, used instead of Path. It is moved, so it can be used only
	// once; the caller still closes it.
	Mount *os.File
	// Socket wants a unix socket, which is refused without it: read-only keeps nobody from
	// connecting to one (unix(7)).
	Socket bool
}

func (s Source) zero() bool { return s.Path == "" && s.Mount == nil }

// A Bind is a source and the name it gets.
type Bind struct {
	Name   string // one component of a path
	Source Source
}

// User is whom commands run as.
type User struct{ UID, GID uint32 }

// Layout says what a tree is made of.
type Layout struct {
	Dir       string // an empty directory: MountHost makes Dir/root and Dir/dev
	Size      int64  // bytes the tmpfs at / (with /tmp, /dev/shm, …) may hold; ≤ 0: no limit
	Inodes    int64  // files it may hold; ≤ 0: no limit
	Hostname  string // "" means "sandbox"
	User      User   // gets a line in passwd and owns its home and scratch
	Init      Source // program, read-only at /dev/.demesne-init
	Inputs    []Bind // read-only at /in/NAME
	Out       Source // read-write at /out; zero: a directory on /
	Workspace Source // read-write at /workspace; zero: a directory on /

	NameServer netip.Addr // for resolv.conf; zero: none
	Trust      *Trust     // nil: whom the tree trusts anyway

	// Kept, if given, is a directory on a disk for what the sandbox writes, empty or as an earlier
	// tree left it. Where overlayfs cannot use it, Tree.Upper is not UpperKept and KeptWhy says why.
	Kept *os.File
	// Below are what earlier sandboxes wrote over the same image or host, the earliest first. They
	// count only with Kept.
	Below []*os.File
}

// A Tree is a mounted tree. Its methods may be called from any goroutine.
type Tree struct {
	Root string // for the sandbox's /
	Dev  string // for its /dev, to be bound recursively

	CertFile string // see Trust; "" without one

	// Of an image's tree, but Upper and KeptWhy of every one.
	Upper    Upper         // where what is written goes
	UpperWhy error         // why not to a better place
	KeptWhy  error         // why not to Layout.Kept
	Stacked  time.Duration // how long putting the layers together took, without what is mounted in them
	Users    Users         // that the image knew before anything ran
	Account  Account
	Unmapped *User // whom Account stands in for

	aside []string // other directories with mounts that the tree needs until Detach
	shown bool     // see Show
	pts   *os.File // O_PATH, the devpts in Dev; OpenPTY must work after Detach
}

// MountHost makes the tree of the image "host" in l.Dir. On an error it leaves nothing behind,
// but a detached mount among the sources may have been consumed.
func MountHost(l Layout) (*Tree, error) { return mountTree(l, (*Tree).mountHost) }

// mountTree makes the directories, and both trees in them.
func mountTree(l Layout, mountRoot func(*Tree, Layout) (root *plan, err error)) (*Tree, error) {
	if l.Hostname == "" {
		l.Hostname = "sandbox"
	}
	if err := checkHostname(l.Hostname); err != nil {
		return nil, err
	}
	t := &Tree{Root: filepath.Join(l.Dir, "root"), Dev: filepath.Join(l.Dir, "dev")}
	if err := os.Mkdir(t.Root, 0o755); err != nil {
		return nil, fmt.Errorf("make root: %w", err)
	}
	if err := os.Mkdir(t.Dev, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make dev: %w", err), os.Remove(t.Root))
	}
	err := t.mount(l, mountRoot)
	runtime.KeepAlive(l) // its files went by number
	if err != nil {
		return nil, errors.Join(err, t.Unmount())
	}
	return t, nil
}

// mount makes both trees, each as data first (files, and a list of moves) and then attached. One
// after the other: at once they wait for each other in the kernel and gain nothing.
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

// MountSys moves a detached read-only sysfs mount, which is one of the sandbox's network namespace,
// to /sys; without it /sys stays empty. It is a step of its own so that the namespace and the tree
// can be made at the same time. Only before Detach.
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

// Unmount detaches the tree and releases what this process holds of it. Files still open in it stay
// usable until they are closed. It may be called again.
func (t *Tree) Unmount() error {
	if t.pts != nil {
		t.pts.Close() // of an O_PATH descriptor: nothing to lose
	}
	return t.Detach()
}

// Detach takes both trees out of this mount namespace and removes their directories. A sandbox that
// has its own mount namespace by now keeps them, and OpenPTY still works. Calling it as soon as the
// first program of the sandbox runs keeps the next sandbox fast, for a new mount namespace copies
// every mount of this one: with 100 trees in it that costs 2.5 ms, and with none 0.04 ms.
// It may be called again.
func (t *Tree) Detach() error {
	var errs []error
	if t.shown { // or the sandbox would lose them
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
