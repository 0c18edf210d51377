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
)

// Image is what [MountImage] makes a tree of. None of it is changed.
type Image struct {
	Lowers []*os.File // O_PATH directories, one a layer, the lowest first; none: an empty tree
	Dir    Source     // instead of Lowers: a directory

	// Scratch returns an empty directory on a disk, for what the sandbox writes if a tmpfs cannot
	// take it. It is called at most once, stays the caller's to remove when the tree is gone, and
	// may be nil.
	Scratch func() (string, error)

	WorkingDir string // made if it is missing; "" is none
	User       string // see [Users.Lookup]; becomes Tree.Account
	UIDs, GIDs uint32 // how many ids are mapped, from 0

	lacks lacks
}

// lacks is what the kernel is taken not to have, so that a new one can test what old ones need.
type lacks struct{ detached, tmpfs, overlay bool }

// ErrForeign says that a directory is somebody's who has no id in the sandbox: not even its uid 0
// may change what is there.
var ErrForeign = errors.New("the owner or group of the directory is not mapped")

// MountImage makes the tree of an image in l.Dir, as [MountHost] does that of the host. The image's
// own files are all there, with these exceptions, which it cannot lead anywhere else:
//
//   - /dev, /proc, /sys, /in, /out and /workspace are directories, whatever the image has there;
//   - /tmp and /etc may be links, to a directory in the image: else they are directories too;
//   - /etc/hostname, /etc/hosts and /etc/resolv.conf are ours, in the upper.
func MountImage(l Layout, i Image) (*Tree, error) {
	t, err := mountTree(l, func(t *Tree, l Layout) (*plan, error) { return t.mountImage(l, i) })
	runtime.KeepAlive(i) // its files went by number
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
	return p, p.finish(t.Root, l)
}

// account finds the image's user. Where its id is not mapped, uid 0 stands in.
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

// bare makes the directories that every program expects or that are mounted on.
func (p *plan) bare(Layout) error {
	for _, d := range []struct {
		name string
		mode uint32
	}{{"dev", 0o755}, {"in", 0o755}, {"proc", 0o555}} {
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

// within opens a path of the image. A link leads to where it would lead a process whose root this
// is, and never out. A ".." in such a link is refused while anybody on the machine renames or mounts
// something (openat2(2), EAGAIN), and so is tried again; who renames without an end has no say for ever.
func (d dir) within(name string, flags uint64) (fd int, err error) {
	for range 1000 {
		fd, err = unix.Openat2(d.fd, name, &unix.OpenHow{
			Flags:   flags | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err != unix.EAGAIN {
			break
		}
	}
	return fd, err
}

// mkdirOrLink is mkdir, but a link to a directory is good enough.
func (p *plan) mkdirOrLink(name string, mode uint32) error {
	if fd, err := p.within(name, unix.O_PATH|unix.O_DIRECTORY); err == nil {
		return unix.Close(fd)
	}
	return p.mkdir(name, mode)
}

// imageEtc puts our files into /etc. A directory that has one of their names stays: only the image
// can suffer from it.
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

// imageTrust writes CertFile and JavaFile, if they are to be.
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

// replace writes a file in place of whatever has the name, unless that is a directory.
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

// quietAPT has Debian's apt download as root: the user it would change to does not exist. An image
// without apt has no such directory.
func (p *plan) quietAPT() {
	fd, err := p.within("etc/apt/apt.conf.d", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	dir{fd: fd, at: "/etc/apt/apt.conf.d/", umask: p.umask}.replace("99demesne", "APT::Sandbox::User \"root\";\n")
}

// makeWorkingDir makes a directory of the image that is missing, as docker run does. What cannot be
// made, a command that starts there will tell.
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
