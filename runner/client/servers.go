package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/ipc"
)

// server is the process that serves the socket of a mount: see [runner.Mount].Server.
//
//	client                      demesne-frontend NAME SOCKET
//	  │ makes and locks the directory, listens
//	  │ ── starts it ──────────▶ with the listener (3) and the lock (4)
//	  │ ── create, run or restart call to the runner
//	  │ ── end of stdin ───────▶ finds the live sandbox that has the socket, and serves it; without one it ends
//
// It ends with the sandbox's processes, and removes the directory then. The lock shows that it lives.
type server struct {
	cmd      *exec.Cmd
	starting io.Closer // open while the sandbox is made
	stays    bool      // it may outlive this client
}

// serverDocker is the only frontend that serves sockets.
const serverDocker = "docker"

// startServer listens on the socket of m, and starts the server, unless another caller that starts the sandbox has done so.
func (s *sourceFiles) startServer(m *runner.Mount, stays bool) error {
	if m.Server != serverDocker || !isSocket(m.Source) || !m.Socket {
		return ipc.Errorf(ipc.CodeInvalid, "open mount %q: no frontend %q serves sockets", m.Source, m.Server)
	}
	argv, err := FindFrontend(m.Server)
	if err != nil {
		return err
	}
	lock, err := takeSocketDir(m.Source)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close() // the server has it too
	listener, err := listenIn(lock, m.Source)
	if err == nil {
		defer listener.Close()
		v := server{cmd: exec.Command(argv[0], append(argv[1:], m.Source)...), stays: stays}
		v.cmd.ExtraFiles = []*os.File{listener, lock}
		v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's signals are for the command
		if !stays {
			v.cmd.Stderr = os.Stderr
		}
		if v.starting, err = v.cmd.StdinPipe(); err == nil {
			err = v.cmd.Start()
		}
		s.servers = append(s.servers, v)
	}
	if err != nil {
		s.servers = nil
		return errors.Join(fmt.Errorf("start server of %q: %w", m.Target, err), os.RemoveAll(filepath.Dir(m.Source)))
	}
	return nil
}

// takeSocketDir makes and locks the directory of a socket. It waits for the server of the sandbox's earlier processes, and removes
// what a killed one left. It returns nil if a live server listens.
func takeSocketDir(socket string) (lock *os.File, err error) {
	dir := filepath.Dir(socket)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		old := os.Mkdir(dir, 0o700)
		if old != nil && !errors.Is(old, os.ErrExist) {
			return nil, old
		}
		lock, err := flock.TryOpen(dir, unix.O_DIRECTORY, flock.Exclusive)
		switch {
		case err == nil && old == nil:
			return lock, nil
		case err == nil:
			err = removeSocketDir(socket)
			lock.Close()
		case errors.Is(err, flock.ErrLocked):
			if served(socket) {
				return nil, nil
			}
			if err = nil; time.Since(began) > runner.RemoveTime {
				return nil, ipc.Errorf(ipc.CodeBusy, "wait for the end of the server of %q", socket)
			}
			time.Sleep(time.Millisecond)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}

// socketForm is the form of the last two elements of a socket's path, see package session.
const socketForm = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]-[0-9][0-9][0-9][0-9][0-9][0-9]-????????/docker.sock"

// isSocket reports whether a path is one of a socket that has a server. Real root's runner, which names it later, has fewer rights than
// root: it must not have another directory made or removed.
func isSocket(path string) bool {
	like, _ := filepath.Match(socketForm, filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
	return like && filepath.IsAbs(path) && filepath.Clean(path) == path
}

// removeSocketDir removes the directory of a socket whose server was killed. One without the caller's socket, such as an output
// directory, is removed only if it is empty.
func removeSocketDir(socket string) error {
	var st unix.Stat_t
	err := unix.Lstat(socket, &st)
	dir := filepath.Dir(socket)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return os.NewSyscallError("rmdir", unix.Rmdir(dir))
	}
	return os.RemoveAll(dir)
}

// socketIn makes a socket, and its address through its directory: see [runDir.sockaddr].
func socketIn(dir *os.File, path string) (*os.File, unix.Sockaddr, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socket", err)
	}
	return os.NewFile(uintptr(fd), path), &unix.SockaddrUnix{Name: fsutil.FDPath(int(dir.Fd())) + "/" + filepath.Base(path)}, nil
}

// listenIn listens on a socket in its directory.
func listenIn(dir *os.File, path string) (*os.File, error) {
	f, at, err := socketIn(dir, path)
	if err != nil {
		return nil, err
	}
	if err = unix.Bind(int(f.Fd()), at); err == nil {
		err = unix.Listen(int(f.Fd()), unix.SOMAXCONN)
	}
	if err != nil {
		f.Close()
		return nil, os.NewSyscallError("listen", err)
	}
	// Only the sandbox and its containers see the file: its directory is the caller's own. They may have other user ids.
	return f, os.Chmod(path, 0o666)
}

// served reports whether a process listens on a socket.
func served(path string) bool {
	dir, err := openAt(filepath.Dir(path))
	if err != nil {
		return false
	}
	defer dir.Close()
	f, at, err := socketIn(dir, path)
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Connect(int(f.Fd()), at) == nil
}

// serve tells the servers that their sandbox was made. Close of the client waits for the end of those that do not stay.
func (s *sourceFiles) serve() {
	for _, v := range s.servers {
		v.starting.Close()
		if v.stays {
			go v.cmd.Wait()
		} else {
			s.c.serving.Go(func() { v.cmd.Wait() })
		}
	}
}

// awaitServers waits until the servers of a sandbox without processes have ended, and removes what a killed one left.
func awaitServers(ctx context.Context, sockets []string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, runner.RemoveTime)
	defer cancel()
	for _, socket := range slices.DeleteFunc(sockets, func(s string) bool { return !isSocket(s) }) {
		dir := filepath.Dir(socket)
		lock, one := flock.Open(ctx, dir, unix.O_DIRECTORY, flock.Exclusive)
		if one == nil {
			one = removeSocketDir(socket)
			lock.Close()
		}
		if !errors.Is(one, os.ErrNotExist) {
			err = errors.Join(err, one)
		}
	}
	return err
}

// unserved reports whether a server has ended before its sandbox.
func unserved(sockets []string) bool {
	for _, socket := range sockets {
		if held, _ := flock.Held(filepath.Dir(socket)); !held {
			return true
		}
	}
	return false
}
