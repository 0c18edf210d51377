package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs/upper"
)

// A sandbox of an image where nothing can be mounted has a copy of the image, which chroot(2) makes its root. The copy
// belongs to the caller's user, like all that the sandbox writes: it has that one id. There is no /proc, no /sys and no
// terminal. /in has copies of the inputs, and what the sandbox leaves in /out is copied to the caller's directory
// ([Tree.Deliver]).

// UpperChroot is the Upper of [Layout.CopyImage].
const UpperChroot Upper = "chroot"

// CopyImage makes the tree of an image in l.Dir/root, or takes the one that it made there earlier, with new inputs. It
// makes device nodes, so the caller must be uid 0 with CAP_MKNOD.
func (l Layout) CopyImage(i Image) (*Tree, error) {
	t := &Tree{Root: filepath.Join(l.Dir, "root"), Upper: UpperChroot, views: map[string]*os.File{}}
	if _, err := os.Lstat(t.Root); errors.Is(err, fs.ErrNotExist) {
		if err := copyLayers(l.Dir, "new", i.Lowers); err != nil {
			return nil, fmt.Errorf("copy image: %w", err)
		}
		if err := os.Rename(filepath.Join(l.Dir, "new"), t.Root); err != nil {
			return nil, fmt.Errorf("copy image: %w", err)
		}
	}
	runtime.KeepAlive(i) // its files were passed on as descriptor numbers
	fd, err := t.openRoot()
	if err != nil {
		return nil, err
	}
	p := &plan{dir: dir{fd: fd, at: "/"}}
	defer p.close()
	if err := t.furnish(p, l, i); err != nil {
		return nil, err
	}
	return t, nil
}

// copyLayers makes a copy of the layers, merged, in dir. A killed process may have left one that is not complete.
func copyLayers(at, name string, lowers []*os.File) error {
	parent, err := os.Open(at)
	if err != nil {
		return err
	}
	defer parent.Close()
	if _, err := fsutil.RemoveAll(int(parent.Fd()), name); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Mkdirat(int(parent.Fd()), name, 0o755); err != nil {
		return err
	}
	if len(lowers) == 0 {
		return nil
	}
	to, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	for _, f := range lowers {
		if err := upper.CopyOwn(int(f.Fd()), to); err != nil {
			return err
		}
	}
	return dir{fd: int(parent.Fd()), at: name}.likeRoot(name, int(lowers[len(lowers)-1].Fd()))
}

// furnish makes everything in the tree that is not the image's. An image and an earlier run are untrusted, and nothing of
// them runs now.
func (t *Tree) furnish(p *plan, l Layout, i Image) error {
	if l.Aside != "" { // in place of a link
		if err := p.mkdir(l.Aside, 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"dev", l.aside("in")} { // of an earlier run
		if _, err := fsutil.RemoveAll(p.fd, name); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if err := p.mkdir("dev", 0o755); err != nil {
		return err
	}
	if err := p.learnUmask("dev/shm"); err != nil {
		return err
	}
	for _, step := range []func(Layout) error{p.bare, p.imageEtc, p.copiedDev, p.copiedInputs} {
		if err := step(l); err != nil {
			return err
		}
	}
	for _, name := range []string{l.aside("out"), l.aside("workspace"), "sys"} {
		if err := p.mkdir(name, 0o755); err != nil {
			return err
		}
	}
	var err error
	if t.CertFile, err = p.imageTrust(l); err != nil {
		return err
	}
	p.quietAPT()
	p.makeWorkingDir(i.WorkingDir)
	if t.Users, err = readUsers(p.fd); err != nil {
		return err
	}
	t.Account, t.Unmapped, err = i.account(t.Users)
	return err
}

// copiedDev makes the devices and the sandbox's first program.
func (p *plan) copiedDev(l Layout) error {
	dev, err := p.sub("dev")
	if err != nil {
		return err
	}
	defer unix.Close(dev.fd)
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		if err := unix.Mknodat(dev.fd, d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("make /dev/%s: %w", d.name, err)
		}
		if err := dev.chmod(d.name, 0o666); err != nil {
			return err
		}
	}
	fd, err := unix.Openat(dev.fd, "null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil { // EACCES on a file system that is mounted nodev
		return fmt.Errorf("open /dev/null of the tree: %w", err)
	}
	unix.Close(fd)
	if l.Init.zero() {
		return nil
	}
	return dev.copied(l.Init, initName)
}

// copiedInputs copies the inputs.
func (p *plan) copiedInputs(l Layout) error {
	in, err := p.sub(l.aside("in"))
	if err != nil {
		return err
	}
	defer unix.Close(in.fd)
	for _, b := range l.Inputs {
		if err := in.copied(b.Source, b.Name); err != nil {
			return err
		}
	}
	return nil
}

// copied makes name a copy of a source.
func (d dir) copied(s Source, name string) error {
	err := d.copySource(s, name)
	if err != nil {
		return fmt.Errorf("copy %q to %s%s: %w", s.name(), d.at, name, err)
	}
	return nil
}

func (d dir) copySource(s Source, name string) error {
	at, err := fsutil.Openat2(unix.AT_FDCWD, s.Path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return err
	}
	defer unix.Close(at)
	kind, err := s.kind(at)
	if err != nil || kind != unix.S_IFDIR {
		if err == nil {
			err = upper.CopyOwnFile(at, d.fd, name)
		}
		return err
	}
	if err := d.mkdir(name, 0o755); err != nil {
		return err
	}
	to, err := d.sub(name)
	if err != nil {
		return err
	}
	defer unix.Close(to.fd)
	return upper.CopyOwn(at, to.fd)
}

// sub opens a directory of d.
func (d dir) sub(name string) (dir, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return dir{}, fmt.Errorf("open %s%s: %w", d.at, name, err)
	}
	return dir{fd: fd, at: d.at + name + "/", umask: d.umask}, nil
}

// Gather copies the files that the caller's output directory has to the tree's, which is at inside.
func (t *Tree) Gather(out *os.File, inside string) error {
	return t.exchange(inside, func(own int) error { return upper.CopyOwn(int(out.Fd()), own) })
}

// Deliver copies the tree's output directory to the caller's. Files that the caller's has already, and the tree's has no
// more, stay. Processes of the sandbox may write meanwhile.
func (t *Tree) Deliver(out *os.File, inside string) error {
	return t.exchange(inside, func(own int) error { return upper.CopyOwn(own, int(out.Fd())) })
}

func (t *Tree) exchange(inside string, do func(own int) error) error {
	root, err := t.openRoot()
	if err != nil {
		return err
	}
	defer unix.Close(root)
	own, err := dir{fd: root}.within(inside[1:], unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		err = do(own)
		unix.Close(own)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", inside, err)
	}
	return nil
}
