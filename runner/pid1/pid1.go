// Package pid1 is PID 1 of a sandbox. It restricts itself once, then starts, signals and reaps commands for the
// runner. cmd/demesne-init only calls [Main].
//
// The runner talks to it through the socket at descriptor 3 (package pid1api): first guest.setup, then any
// number of guest.exec and guest.signal. At EOF on the socket PID 1 exits, and the kernel kills the rest of the
// pid namespace. So no process survives a killed runner.
//
// # One thread starts everything
//
// Before Landlock's ABI 8 a ruleset restricts one thread. go-landlock applies it to each thread of a process in
// turn, so every thread gets its own domain. With scopes, a process can signal and reach (abstract sockets) its
// own domain and domains nested in it, but not a sibling domain.
//
// All commands must be in one domain that PID 1 can signal. So one locked thread, the spawner, does every fork
// and every kill. It also reads the socket and serves each request where it arrives. The main thread is a
// different thread and therefore in a different domain. Where the kernel gives each thread its own domain, this
// keeps PID 1 as a whole out of the commands' reach.
//
// # What a command inherits
//
// A command gets three descriptors, the environment in its request, umask 022, default signal dispositions, and
// its own session and process group. It inherits the Landlock domain, the seccomp filter and no_new_privs, but no
// capability. The spawner's bounding set is empty, except for KeepCaps and RootCaps of pid1api.Setup, so execve
// gives uid 0 nothing else. PID 1 itself keeps CAP_SETUID, CAP_SETGID and CAP_KILL to start and end commands of
// other users.
//
// Resource limits are process-wide. PID 1 sets them on itself before its first fork, see [rlimits]. They apply
// to PID 1's own threads, and a cgroup's pids.max counts those too. So PID 1 creates all threads it may ever
// need before the first command ([warm]): a fork bomb must not end PID 1. It creates them after the
// restriction, which they inherit, because each existing thread costs one signal per step of the restriction.
//
// Last, the spawner alone installs a second filter, which commands inherit. The filter stops them from setting
// PID 1's limits and scheduling through the id of any of its threads, see [protectInit].
//
// # Limits of this package
//
// It does not mount, map ids, or enter namespaces: it starts inside them. It does not carry a command's output:
// the runner owns the pipes. It trusts the runner. It does not trust the workload and reads nothing from it
// except the results of wait(2). In Subreaper mode (no pid namespace) it kills descendants at EOF, but a
// SIGKILL of PID 1 itself would leave them running. Only a pid namespace prevents that.
package pid1

import (
	"os"
	"runtime"
	"sync"

	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// socketFD is the inherited descriptor of the runner's socket.
const socketFD = 3

// defaultSlack is the kernel's default timer slack in nanoseconds, prctl(2).
const defaultSlack = 50_000

// guest is PID 1's state.
type guest struct {
	peer *ipc.Peer
	null *os.File // stands in for missing stdio

	// Only the spawner uses the fields from here to protected.
	ready  bool // setup has completed
	facts  pid1api.Facts
	setup  pid1api.Setup
	limits rlimits
	// signalScope reports that setup saw the kernel refuse the spawner a signal to the runner.
	signalScope bool
	// protected is the error of protectInit. While it is set, no command starts.
	protected error

	warmed chan struct{} // closed when all threads exist

	// mu makes starting a command and reporting its exit atomic. While it is held, a pid in running is not
	// reaped and still belongs to its command.
	mu      sync.Mutex
	running map[int]uint64 // pid → exec
	pids    map[uint64]int // exec → pid
	started chan struct{}  // signalled after a fork: the reaper has a child to wait for
}

// Main serves the runner until the socket closes and returns the exit status.
func Main() int {
	// Keeps the main thread apart from the spawner and the other threads: see the package comment.
	runtime.LockOSThread()
	// Bounds the runtime's size: a 64-core machine may run a hundred sandboxes.
	runtime.GOMAXPROCS(2)
	harden()

	g := &guest{running: map[int]uint64{}, pids: map[uint64]int{}, started: make(chan struct{}, 1), warmed: make(chan struct{})}
	// os.OpenFile would start the poller. If the open fails, a command without its own stdio is refused.
	if fd, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		g.null = os.NewFile(uintptr(fd), os.DevNull)
	}
	// The socket blocks: the spawner sleeps in recvmsg and needs no poller to wake it.
	unix.SetNonblock(socketFD, false)
	g.peer = ipc.NewPeer(ipc.NewConn(os.NewFile(socketFD, "runner")), g.handle)

	done := make(chan int)
	go func() { done <- g.spawner() }()
	go g.reaper()
	return <-done
}

// spawner serves the socket. It keeps its thread until it returns.
func (g *guest) spawner() int {
	runtime.LockOSThread()
	// Children inherit the signal mask of the thread that forks.
	var none unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	// The runner's programs use a larger timer slack, see cmd/demesne-runner/userns.c. Commands inherit the kernel's
	// default from this thread.
	unix.Prctl(unix.PR_SET_TIMERSLACK, defaultSlack, 0, 0, 0)
	g.peer.Serve() // any error means that the runner has gone
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
	case pid1api.OpProbe:
		err = g.handleProbe(m)
	case pid1api.OpExec:
		err = g.handleExec(m)
	case pid1api.OpSignal:
		err = g.handleSignal(m)
	default:
		err = ipc.Errorf(ipc.CodeInvalid, "unknown operation %q", m.Op)
	}
	if err != nil {
		g.peer.Fail(m, err)
	}
}
