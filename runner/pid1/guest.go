// Package guest is PID 1 of a sandbox: it restricts itself once, then starts, signals
// and reaps commands for the runner. cmd/demesne-init is nothing but [Main].
//
// The runner speaks to it through the socket at descriptor 3 (package guestapi): first
// guest.setup, then any number of guest.exec and guest.signal. EOF on the socket is
// the end: PID 1 exits and the kernel kills the rest of the pid namespace, so
// nothing survives a runner that was killed.
//
// # One thread starts everything
//
// Before Landlock's ABI 8 a ruleset restricts one thread, and go-landlock applies it
// to each thread of a process in turn: every thread gets a domain of its own. With
// scopes, a process can signal and reach (abstract sockets) its own domain and those
// made inside it, not a sibling. So that all commands are of one domain, and PID 1
// can signal them, one locked thread, the spawner, does every fork and every kill. It
// is the thread that reads the socket, too: a request is served where it arrives. The
// main thread is another one and so of another domain, which keeps PID 1 as a whole
// out of the commands' reach where the kernel gives each thread its own.
//
// # What a command inherits
//
// Three descriptors, the environment it was sent, umask 022, default signal
// dispositions, a session and process group of its own, the Landlock domain, the
// seccomp filter, no_new_privs and no capability: the spawner's bounding set is empty
// (but for pid1api.Setup's KeepCaps and RootCaps), so execve gives uid 0 nothing else, while PID 1 itself
// keeps CAP_SETUID, CAP_SETGID and CAP_KILL to start and end commands of other users.
//
// Resource limits are process-wide and are set on PID 1 itself before its first fork,
// see [rlimits]. For the same reason, and because a cgroup's pids.max counts PID 1's
// threads, the threads it may ever need are made before the first command ([warm]): a
// fork bomb must not end PID 1. They are made after the restriction, which they inherit:
// each thread that is there already costs a signal for every part of it.
//
// Last, the spawner alone takes a second filter, which commands inherit: they may not set
// PID 1's limits and scheduling by the id of any of its threads, see [protectInit].
//
// # What it does not do
//
// It does not mount, map ids, or move into namespaces: it is started inside them. It
// does not carry a command's output: the pipes are the runner's. It believes the
// runner; it believes nothing a workload does, and reads nothing of it but wait(2)'s
// answers. In Sentry mode (no pid namespace) descendants are killed at EOF, but a
// SIGKILL of PID 1 itself would leave them: only a pid namespace closes that.
package pid1

import (
	"os"
	"runtime"
	"sync"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// socketFD is where the runner's socket is inherited.
const socketFD = 3

// defaultSlack is the kernel's timer slack in nanoseconds, prctl(2).
const defaultSlack = 50_000

// guest is PID 1's state.
type guest struct {
	peer *ipc.Peer
	null *os.File // stdio that was not sent

	// Only the spawner's.
	ready  bool // setup was done
	facts  pid1api.Facts
	setup  pid1api.Setup
	limits rlimits
	// signalScope: the spawner was seen to be refused a signal to the runner.
	signalScope bool
	// protected is why commands could set PID 1's limits: then none is started.
	protected error

	warmed chan struct{} // closed when all threads are there

	// mu makes starting and reporting one step each: whoever holds it knows that a
	// pid in running has not been reaped, so that it is still that command's.
	mu      sync.Mutex
	running map[int]uint64 // pid → exec
	pids    map[uint64]int // exec → pid
	started chan struct{}  // rung after a fork: there is something to wait for
}

// Main serves the runner until it is gone and returns the exit status.
func Main() int {
	// The main thread is neither the spawner nor any other: see the package comment.
	runtime.LockOSThread()
	// Not of a 64-core machine's size in each of a hundred sandboxes.
	runtime.GOMAXPROCS(2)
	harden()

	g := &guest{running: map[int]uint64{}, pids: map[uint64]int{}, started: make(chan struct{}, 1), warmed: make(chan struct{})}
	// Not os.OpenFile, which would start the poller. Without it, a command that has no
	// stdio of its own is refused.
	if fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		g.null = os.NewFile(uintptr(fd), os.DevNull)
	}
	// The socket blocks: the spawner sleeps in recvmsg and needs no poller to wake it.
	unix.SetNonblock(socketFD, false)
	g.peer = ipc.NewPeer(ipc.NewConn(os.NewFile(socketFD, "runner")), g.handle)

	done := make(chan int)
	go func() { done <- g.spawner() }()
	go g.reaper()
	go ipc.Prewarm(pid1api.Facts{}, pid1api.Exec{}, pid1api.Executed{}, pid1api.Exited{})
	return <-done
}

// spawner serves the socket. It keeps its thread for good.
func (g *guest) spawner() int {
	runtime.LockOSThread()
	// Children inherit the mask of the thread that forks.
	var none unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The runner's programs sleep longer than asked, see package constructor; commands
	// inherit the kernel's default from this thread.
	unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0)
	g.peer.Serve() // whatever the error is, the runner is not there any more
	if g.setup.Subreaper {
		g.killDescendants()
	}
	return 0
}

// handle serves one request, on the spawner.
func (g *guest) handle(m *ipc.Message) {
	defer m.Close()
	var err error
	switch m.Op {
	case pid1api.OpSetup:
		err = g.handleSetup(m)
	case pid1api.OpExec:
		err = g.handleExec(m)
	case pid1api.OpSignal:
		err = g.handleSignal(m)
	default:
		err = ipc.Errorf(ipc.CodeInvalid, "operation %q: not known here", m.Op)
	}
	if err != nil {
		g.peer.Fail(m, err)
	}
}
