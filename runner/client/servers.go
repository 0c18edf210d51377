package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
	"demesne/runner/ipc"
)

// server is the process that listens on the socket of a mount: see [runner.Mount].Server.
//
//	client                         demesne-frontend NAME SOCKET
//	  │ ── starts it ────────────▶ makes and locks the directory, listens
//	  │ ◀──── a line of stdout ─── empty, or the error
//	  │ ── create, run or restart call to the runner
//	  │ ── end of stdin ─────────▶ finds the live sandbox that has the socket, and serves it; without one it ends
//
// It ends with the sandbox's processes, and removes the directory then. The lock shows that it lives.
type server struct {
	cmd      *exec.Cmd
	starting io.Closer // open while the sandbox is made
	stays    bool      // it may outlive this client
}

// serverDocker is the only frontend that listens on sockets.
const serverDocker = "docker"

// startServer starts the server of m, and waits until it listens.
func (s *sourceFiles) startServer(m *runner.Mount, stays bool) error {
	if m.Server != serverDocker || !filepath.IsAbs(m.Source) || !m.Socket {
		return ipc.Errorf(ipc.CodeInvalid, "open mount %q: no frontend %q serves sockets", m.Source, m.Server)
	}
	argv, err := FindFrontend(m.Server)
	if err != nil {
		return err
	}
	cmd := exec.Command(argv[0], append(argv[1:], m.Source)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a terminal's signals are for the command
	if !stays {
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start server of %q: %w", m.Target, err)
	}
	s.servers = append(s.servers, server{cmd, in, stays})
	line, err := bufio.NewReader(io.LimitReader(out, 4<<10)).ReadString('\n')
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s ended", argv[0])
	} else if line = strings.TrimSpace(line); line != "" {
		err = errors.New(line)
	}
	if err != nil {
		return fmt.Errorf("start server of %q: %w", m.Target, err)
	}
	return nil
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
	for _, socket := range sockets {
		dir := filepath.Dir(socket)
		lock, one := flock.Open(ctx, dir, unix.O_DIRECTORY, flock.Exclusive)
		if one == nil {
			one = os.RemoveAll(dir)
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
