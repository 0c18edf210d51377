package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
)

// NS is a network namespace with a loopback and nothing else. It lives as long as a process, a descriptor or a
// mount refers to it.
type NS struct {
	File     *os.File // of nsfs, for setns(2)
	Sysfs    *os.File // a detached read-only mount of sysfs, to move_mount(2) once; or nil
	SysfsErr error    // why Sysfs is nil

	routes *os.File // an rtnetlink(7) socket made inside
	ioctls bool     // routes is another socket, because a filter refuses AF_NETLINK
}

// New makes a namespace owned by the caller's user namespace, over which it needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
// It verifies the namespace; see [NS.Verify].
func New() (*NS, error) {
	var n *NS
	err := procself.OnDisposableThread(func() (err error) {
		if n, err = enter(); err != nil {
			return err
		}
		writeSysctls(sandboxSysctls)
		n.Sysfs, n.SysfsErr = mountSysfs()
		if err = n.Verify(); err != nil {
			n.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	return n, nil
}

// Listen listens for TCP in the namespace, for example on its loopback, for a server that runs outside. The socket
// is blocking; net.FileListener takes a copy.
func (n *NS) Listen(at netip.AddrPort) (l *os.File, err error) {
	err = n.within(func() error {
		fd, err := plainSocket(at)
		if err == nil {
			l = os.NewFile(uintptr(fd), "listener")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in sandbox: %w", err)
	}
	return l, nil
}

// plainSocket listens in the calling thread's namespace, on any interface that has the address.
func plainSocket(at netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // connections of an earlier listener may still wait
	if err = unix.Bind(fd, sockaddr(at)); err != nil {
		err = fmt.Errorf("bind %v: %w", at, err)
	} else if err = unix.Listen(fd, backlog); err != nil {
		err = fmt.Errorf("listen %v: %w", at, err)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

// within runs f on a thread in the namespace.
func (n *NS) within(f func() error) error {
	return procself.OnDisposableThread(func() error {
		if n.File == nil {
			return os.ErrClosed
		}
		if err := control(n.File, func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) }); err != nil {
			return fmt.Errorf("enter namespace: %w", err)
		}
		return f()
	})
}

// Close releases this process's reference to the namespace. A sandbox that joined it keeps it. Close can be called
// twice.
func (n *NS) Close() error { return closeAll(&n.File, &n.Sysfs, &n.routes) }

func closeAll(files ...**os.File) error {
	var errs []error
	for _, f := range files {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// enter moves the calling thread, which must be disposable, into a new namespace and brings lo up. One socket
// serves for everything: interface ioctls work on any socket, and SIOCGSKNS needs no /proc, which may be missing or
// show other processes.
func enter() (*NS, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("unshare: %w", err)
	}
	sock, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	refused := err == unix.EAFNOSUPPORT || err == unix.EPERM || err == unix.EACCES // by systemd's RestrictAddressFamilies
	if refused {
		sock, err = anySocket()
	}
	if err != nil {
		return nil, fmt.Errorf("open rtnetlink: %w", err)
	}
	n := &NS{routes: os.NewFile(uintptr(sock), "rtnetlink"), ioctls: refused}
	if err := setUp(sock, "lo", 0); err != nil {
		n.Close()
		return nil, err
	}
	fd, err := unix.IoctlRetInt(sock, unix.SIOCGSKNS)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("open namespace: %w", err)
	}
	n.File = os.NewFile(uintptr(fd), "netns")
	return n, nil
}

// anySocket makes a socket for interface ioctls.
func anySocket() (fd int, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_UNIX} {
		if fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err == nil {
			return fd, nil
		}
	}
	return -1, err
}

// setUp brings an interface of sock's namespace up with one ioctl. It also sets the given flags, and clears all
// other settable ones, which package netlink does not do.
func setUp(sock int, name string, flags uint16) error {
	link, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	link.SetUint16(unix.IFF_UP | flags)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	return nil
}
