package client

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
)

// listen opens the listeners of ports with the caller's rights. The runner could not open a socket in a directory of
// real root's.
func (s *sourceFiles) listen(ports []runner.Port) error {
	for i, p := range ports {
		if p.Within != "" {
			continue
		}
		f, err := open(p)
		if err != nil {
			e := ipc.Errorf(ipc.CodeInvalid, "publish %q: %w", p.Listen, err)
			e.Hint = another(p, err)
			return e
		}
		s.byName[api.FilePort(i)] = f
		if path, ok := strings.CutPrefix(p.Listen, "unix:"); ok {
			bound, err := grants.LookSocket(path)
			if err != nil {
				return ipc.Errorf(ipc.CodeInvalid, "publish %q: %w", p.Listen, err)
			}
			s.granted.Sockets = append(s.granted.Sockets, bound)
		}
	}
	return nil
}

// unlisten removes the sockets of a call that made no sandbox, and ends their servers.
func (s *sourceFiles) unlisten() {
	for _, v := range s.servers {
		v.starting.Close()
		v.cmd.Wait()
	}
	s.servers = nil
	for _, bound := range s.granted.Sockets {
		bound.Remove()
	}
}

// canListen checks that ports can be listened on, by opening and closing their listeners.
func canListen(ports []runner.Port) error {
	var s sourceFiles
	s.byName = ipc.Files{}
	defer s.close()
	defer s.unlisten()
	return s.listen(ports)
}

// firstFree is the first port on which every user may listen, unless the machine is configured otherwise
// (ip_unprivileged_port_start, ip(7)).
const firstFree = 1024

// another returns a hint for a caller that may not listen on a port because of its number, or because it is in use.
// It is pure.
func another(p runner.Port, err error) string {
	at, bad := netip.ParseAddrPort(p.Listen)
	if bad == nil && errors.Is(err, unix.EADDRINUSE) {
		return fmt.Sprintf("use another port, or --publish unix:PATH:%d", p.To)
	}
	if bad != nil || at.Port() >= firstFree || !errors.Is(err, unix.EACCES) {
		return ""
	}
	other := netip.AddrPortFrom(at.Addr(), at.Port()+8000)
	return fmt.Sprintf("ports below %d need root: use --publish %v:%d", firstFree, other, p.To)
}

func open(p runner.Port) (*os.File, error) {
	if p.To == 0 {
		return nil, errors.New("port 0 in the sandbox")
	}
	if path, ok := strings.CutPrefix(p.Listen, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return nil, errors.New("the path of a socket must be absolute")
		}
		return listenAt(unix.AF_UNIX, &unix.SockaddrUnix{Name: path})
	}
	at, err := netip.ParseAddrPort(p.Listen)
	switch {
	case err != nil || at.Port() == 0:
		return nil, errors.New("not ADDRESS:PORT or unix:PATH")
	case at.Addr().Is4():
		return listenAt(unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
	}
	return listenAt(unix.AF_INET6, &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
}

func listenAt(family int, at unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	if family != unix.AF_UNIX {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	}
	err = unix.Bind(fd, at)
	if u, ok := at.(*unix.SockaddrUnix); ok && err == unix.EADDRINUSE && dead(u) {
		unix.Unlink(u.Name)
		err = unix.Bind(fd, at)
	}
	if err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		f.Close()
		return nil, os.NewSyscallError("listen", err)
	}
	return f, nil
}

// dead reports whether no process listens on a socket: its listener was killed and could not remove it.
func dead(at *unix.SockaddrUnix) bool {
	var st unix.Stat_t
	if err := unix.Lstat(at.Name, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return false
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Connect(fd, at) == unix.ECONNREFUSED
}
