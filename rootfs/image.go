package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Image is the input of [MountImage], which changes none of it.
type Image struct {
	Lowers []*os.File // O_PATH directories, one per layer, the lowest first; if empty, the tree is empty
	Dir    Source     // a directory, instead of Lowers

	// Scratch returns an empty directory on a disk, for the sandbox's writes if a tmpfs cannot hold them. It is
	// called at most once, and may be nil. The caller removes the directory when the tree has gone.
	Scratch func() (string, error)

	WorkingDir string // made if it is missing; "" for none
	User       string // see [Users.Lookup]; becomes Tree.Account
	UIDs, GIDs uint32 // how many ids are mapped, from 0

	lacks lacks
}

// lacks names kernel features to treat as missing, so that a test on a new kernel covers the fallbacks for old
// ones.
type lacks struct{ detached, tmpfs, overlay bool }

// ErrForeign reports a directory whose owner has no id in the sandbox: not even the sandbox's uid 0 may change its
// contents.
var ErrForeign = errors.New("the directory's owner or group is not in the id map")

// MountImage makes the tree of an image in l.Dir, as [MountHost] does for the host. The tree has all files of the
// image, with these exceptions, which the image cannot redirect:
//
//   - /dev, /proc, /sys, /in, /out and /workspace are directories, whatever the image has there;
//   - /tmp and /etc may be links to a directory in the image, and are directories otherwise;
//   - /etc/hostname, /etc/hosts and /etc/resolv.conf are written by this package, in the upper.
func MountImage(l Layout, i Image) (*Tree, error) {
	t, err := mountTree(l, func(t *Tree, l Layout) (*plan, error) { return t.mountImage(l, i) })
	runtime.KeepAlive(i) // its files were passed on as descriptor numbers
	return t, err
}

func (t *Tree) mountImage(l Layout, i Image) (*plan, error) {
	began := time.Now()
	p, err := t.overlay(l, i)
	if err != nil {
		return nil, fmt.Errorf("mount image: %w", err)
	}
	t.Stacked = time.Since(began)
	for _, step := range []func(Layout) error{p.bare, p.imageEtc} {
		if err := step(l); err != nil {
			return p, err
		}
	}
	if t.CertFile, err = p.imageTrust(l); err != nil {
		return p, err
	}
	if i.UIDs == 1 {
		p.quietAPT()
	}
	p.makeWorkingDir(i.WorkingDir)
	if t.Users, err = readUsers(p.fd); err != nil {
		return p, err
	}
	if t.Account, t.Unmapped, err = i.account(t.Users); err != nil {
		return p, err
	}
	l.User = t.Account.User
	return p, t.finish(p, l)
}

// account looks up the image's user. If its id is not mapped, uid 0 stands in for it.
func (i Image) account(users Users) (a Account, unmapped *User, err error) {
	if a, err = users.Lookup(i.User); err != nil {
		return a, nil, err
	}
	if a.UID >= i.UIDs || a.GID >= i.GIDs {
		unmapped = &User{a.UID, a.GID}
		if a, err = users.Lookup("0:0"); err != nil {
			return a, nil, err
		}
	}
	a.Groups = slices.DeleteFunc(a.Groups, func(gid uint32) bool { return gid >= i.GIDs })
	return a, unmapped, nil
}

// bare makes the directories that every program expects or that serve as mount points.
func (p *plan) bare(l Layout) error {
	if l.Aside != "" {
		if err := p.mkdir(l.Aside, 0o755); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name string
		mode uint32
	}{{"dev", 0o755}, {l.aside("in"), 0o755}, {"proc", 0o555}} {
		if err := p.mkdir(d.name, d.mode); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		name string
		mode uint32
	}{{"tmp", 0o1777}, {"etc", 0o755}} {
		if err := p.mkdirOrLink(d.name, d.mode); err != nil {
			return err
		}
	}
	return nil
}

// within opens a path of the image. A link resolves as for a process whose root is d, and never leads out of it.
func (d dir) within(name string, flags uint64) (int, error) {
	return fsutil.Openat2(d.fd, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
}

// mkdirOrLink is like mkdir, but accepts a link to a directory.
func (p *plan) mkdirOrLink(name string, mode uint32) error {
	if fd, err := p.within(name, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		return unix.Close(fd)
	}
	return p.mkdir(name, mode)
}

// imageEtc writes the package's own files into /etc. It leaves a directory of the same name alone, as that harms
// only the image.
func (p *plan) imageEtc(l Layout) error {
	fd, err := p.within("etc", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open /etc: %w", err)
	}
	etc := dir{fd: fd, at: "/etc/", umask: p.umask}
	defer unix.Close(fd)
	for _, f := range syntheticEtc(l) {
		switch f.name {
		case "hostname", "hosts", "resolv.conf":
			if err := etc.replace(f.name, f.content); err != nil {
				return err
			}
		}
	}
	return nil
}

// imageTrust writes CertFile and JavaFile if Layout.Trust calls for them, and returns CertFile, or "".
func (p *plan) imageTrust(l Layout) (string, error) {
	text := l.Trust.certFile(func(name string) (int, error) { return p.within(name, unix.O_RDONLY|unix.O_NONBLOCK) })
	if text == nil {
		return "", nil
	}
	fd, err := p.within("etc", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return "", fmt.Errorf("open /etc: %w", err)
	}
	defer unix.Close(fd)
	etc := dir{fd: fd, at: "/etc/", umask: p.umask}
	return CertFile, errors.Join(etc.replace(path.Base(CertFile), string(text)), etc.replace(path.Base(JavaFile), string(javaStore(text))))
}

// replace writes a file in place of any file of that name, unless it is a directory.
func (d dir) replace(name, content string) error {
	err := d.remove(name)
	if errors.Is(err, unix.EISDIR) {
		return nil
	}
	if err == nil {
		err = d.write(name, []byte(content))
	}
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EOVERFLOW) {
		err = ErrForeign
	}
	if err != nil {
		return fmt.Errorf("replace %s%s: %w", d.at, name, err)
	}
	return nil
}

// quietAPT makes Debian's apt download as root, as the user it would switch to is not mapped. An image without apt
// lacks the directory and is left alone.
func (p *plan) quietAPT() {
	fd, err := p.within("etc/apt/apt.conf.d", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	dir{fd: fd, at: "/etc/apt/apt.conf.d/", umask: p.umask}.replace("99demesne", "APT::Sandbox::User \"root\";\n")
}

// makeWorkingDir makes a missing directory of the image, as docker run does. It ignores errors: a command that
// starts there will report them.
func (p *plan) makeWorkingDir(name string) {
	const deepest = 64
	names := strings.Split(path.Clean("/" + name)[1:], "/")
	if name == "" || len(names) > deepest {
		return
	}
	for i := range names {
		fd, err := p.within(path.Join(names[:i+1]...), unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			unix.Close(fd)
			continue
		}
		up, err := p.within(path.Join(names[:i]...)+"/.", unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return
		}
		err = unix.Mkdirat(up, names[i], 0o755)
		unix.Close(up)
		if err != nil {
			return
		}
	}
}
