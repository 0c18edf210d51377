package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/ipc"
)

// A runner greets a caller at once. A stopped runner (SIGSTOP) never does, although the kernel accepts the
// connection. A caller checks every greetLook whether the runner is stopped. It gives up after greetStopped such
// checks in a row, or after greetPatience.
const (
	greetLook     = time.Second
	greetStopped  = 3
	greetPatience = 30 * time.Second
	// startPatience bounds the wait for a lock that a starting runner or a reaper holds.
	startPatience = 2 * time.Minute
)

// greeting reads the first message of the runner at the other end of sock.
func greeting(ctx context.Context, conn *ipc.Conn, sock *os.File) (*ipc.Message, error) {
	defer conn.SetReadDeadline(time.Time{})
	stopped := 0
	for began := time.Now(); ; {
		if err := conn.SetReadDeadline(time.Now().Add(greetLook)); err != nil {
			return nil, err
		}
		m, err := conn.Recv()
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return m, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pid := runnerAt(sock)
		if stopped++; !isStopped(pid) {
			stopped = 0
		}
		if stopped >= greetStopped {
			return nil, &ipc.Error{
				Code: ipc.CodeBusy, Text: fmt.Sprintf("process %d is stopped", pid),
				Hint: fmt.Sprintf("kill -CONT %d  # or kill -KILL, which ends its sandboxes", pid),
			}
		}
		if time.Since(began) > greetPatience {
			return nil, &ipc.Error{
				Code: ipc.CodeBusy, Text: fmt.Sprintf("it has not answered for %v", greetPatience),
				Hint: "try again when this machine is less busy, or kill demesne-runner, which ends its sandboxes",
			}
		}
	}
}

// runnerAt returns the pid of the runner at the other end of sock, or 0 if that is not a runner. SO_PEERCRED names the
// process that called listen(2) last, see package engine.
func runnerAt(sock *os.File) int {
	rc, err := sock.SyscallConn()
	if err != nil {
		return 0
	}
	var peer *unix.Ucred
	if cerr := rc.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil || err != nil {
		return 0
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(int(peer.Pid)) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "demesne-runner" {
		return 0
	}
	return int(peer.Pid)
}

// isStopped reports whether a process is stopped by a signal or a tracer.
func isStopped(pid int) bool {
	if pid == 0 {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := bytes.LastIndexByte(stat, ')')
	return err == nil && end >= 0 && len(stat) > end+2 && (stat[end+2] == 'T' || stat[end+2] == 't')
}
