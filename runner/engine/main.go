// Package engine implements demesne-runner: it serves callers, and keeps the table of their sandboxes.
//
// One process serves many callers and many sandboxes. It runs in an outer user namespace with all capabilities, in
// its own mount namespace, and in the host's network and pid namespaces. A run goes through these parts:
//
//	main.go    starts the process, and ends it when nothing is left to serve
//	serve.go   accepts a connection; caller.go  is one caller, and what it owns
//	calls.go   decodes a call, in a goroutine of its own; frontend.go  checks which sandboxes its caller may see
//	create.go  admits the Spec, and takes a sandbox from pool.go, or a new one
//	table.go   registers it under its id and name; reuse.go and keylock.go  find it by a key
//	           package sandbox makes it:
//	               rootfs (its tree) ∥ network, netns (its namespace, egress, ports) ∥ limits (its control group)
//	               → container (PID 1, by libcontainer) → pid1 (restricts itself) → receipt (what holds)
//	           and executes the command
//	engine.go  ends the sandbox with its owner, or at a call, or with its time; then prepares the next one
//
// Beside a run are restart.go (a sandbox that has only files), fork.go, changes.go (its difference to the image) and
// linger.go (how long the runner waits for the next caller).
//
// Locks are taken in this order: the engine's, the table's, a sandbox's. A caller has a lock for what it owns; no
// other lock is taken under it.
package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"demesne/runner/api"
	"demesne/runner/doctor"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/userns"
)

// newEngine returns an engine that serves one caller, the one that started the runner.
func newEngine(m *sandbox.Machine) *Engine {
	e := &Engine{machine: m, table: table{machine: m, all: map[string]*sandbox.Sandbox{}, slots: map[string]*slot{}}, idle: make(chan struct{}), ready: make(chan struct{})}
	e.accepting, e.callers = true, 1
	e.pool = e.newPool()
	return e
}

// Main runs until the runner is no longer needed and returns its exit code.
func Main() int {
	life, err := lifeline()
	clean := false
	if err == nil {
		clean, err = serveAll(life)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
		return 1
	}
	if clean {
		life.Write([]byte("c"))
	}
	return 0
}

// lifeline returns the runner's end of the pipe that the reaper waits on.
func lifeline() (*os.File, error) {
	if os.Getenv(userns.EnvControl) == "" {
		return nil, errors.New("start: demesne starts this program; do not start it directly")
	}
	for _, name := range []string{userns.EnvControl, userns.EnvClean, userns.EnvMode, userns.EnvLock} {
		os.Unsetenv(name)
	}
	return os.NewFile(userns.FDLife, "life"), nil
}

// serveAll serves until the runner is idle and reports whether it leaves nothing for the reaper to remove.
func serveAll(life *os.File) (clean bool, _ error) {
	os.Setenv("GOMAXPROCS", "1")       // for libcontainer's children; this process has started already
	logrus.SetLevel(logrus.ErrorLevel) // the receipt reports what libcontainer would warn about
	m := &sandbox.Machine{Life: life, Clock: grants.NewClock()}
	ctl := os.NewFile(api.FDControl, "control")
	line, err := bufio.NewReader(ctl).ReadBytes('\n')
	ctl.Close()
	if err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	if err := json.Unmarshal(line, &m.Boot); err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	e := newEngine(m)
	go e.watchProgram()
	// Callers are greeted meanwhile, because they have preparations of their own.
	go e.setUp()
	unix.SetNonblock(api.FDConn, true)
	if !m.Boot.Alone {
		unix.SetNonblock(api.FDListener, true)
		// SO_PEERCRED shows callers the process that called listen(2) last, not the one that made the socket (unix(7)).
		unix.Listen(api.FDListener, api.Backlog)
		go e.accept(os.NewFile(api.FDListener, "listener"))
	}
	e.greet(ipc.NewConn(os.NewFile(api.FDConn, "caller")))
	e.leave()
	<-e.idle
	<-e.ready
	e.pool.Close()
	m.Close()
	return len(doctor.Left(m.Boot.RunDir, m.Boot.Key)) == 0 && !grants.Left(m.Boot.RunDir, m.Boot.Key), nil
}

// setUp sets up the machine. It sweeps in the background, so that no caller waits for the sweep.
func (e *Engine) setUp() {
	defer close(e.ready)
	e.broken = e.machine.SetUp(func() {
		if e.enter() {
			go func() { defer e.leave(); e.sweep() }()
		}
	})
}
