package engine

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// caller is one connection. It owns the one-shot sandboxes made through it, and they end with it.
type caller struct {
	e    *Engine
	peer *ipc.Peer
	door runner.Door

	mu   sync.Mutex
	gone bool
	own  map[*sandbox]bool
	most *runner.Limits // bound on all sandboxes together; nil: no bound

	ephemeral []string // snapshots that are removed with it
	untold    []string // forks that are removed with it unless it calls about them
}

// accept serves callers until the listener is closed.
func (e *Engine) accept(l *os.File) {
	rc, err := l.SyscallConn()
	if err != nil {
		return
	}
	for {
		var fd int
		var aerr error
		err := rc.Read(func(s uintptr) bool {
			fd, _, aerr = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			return aerr != unix.EAGAIN
		})
		if err != nil {
			return
		}
		if aerr != nil {
			time.Sleep(10 * time.Millisecond) // probably out of descriptors, and others will be closed
			continue
		}
		f := os.NewFile(uintptr(fd), "caller")
		go e.greet(ipc.NewConn(f))
	}
}

// introduced reads a caller's first message. Only the socket's user can reach the socket. The check of the user
// namespace rejects that user's workloads in sandboxes.
func (e *Engine) introduced(conn *ipc.Conn) (intro api.Introduction, ok bool) {
	conn.SetReadDeadline(time.Now().Add(initTimeout))
	defer conn.SetReadDeadline(time.Time{})
	m, err := conn.Recv()
	if err != nil {
		return intro, false
	}
	defer m.Close()
	ns := m.File(api.FileUserNS)
	if m.Op != api.OpHello || ns == nil {
		return intro, false
	}
	defer ns.Close()
	if err := m.Decode(&intro); err != nil || !intro.Door.Known() {
		return intro, false
	}
	id, err := api.Identify(ns)
	return intro, err == nil && id == e.boot.Callers
}

// greet starts serving a connection. If the runner is ending, it closes the connection: the caller sees EOF before
// the greeting and starts a new runner.
func (e *Engine) greet(conn *ipc.Conn) {
	if !e.enter() {
		conn.Close()
		return
	}
	intro, ok := e.introduced(conn)
	if !ok {
		conn.Close()
		e.leave()
		return
	}
	e.setLinger(intro)
	c := &caller{e: e, door: intro.Door, own: map[*sandbox]bool{}, most: intro.Totals}
	c.peer = ipc.NewPeer(conn, func(m *ipc.Message) { go c.serve(m) })
	hello := api.Hello{PID: os.Getpid(), Mode: e.boot.Mode}
	if err := conn.Send(ipc.Message{Op: api.OpHello}, hello, e.outMap.files()); err != nil {
		conn.Close()
	}
	go c.run()
}

// outMap keeps the namespace that [api.FileOutMap] describes for later callers.
type outMap struct {
	mu sync.Mutex
	ns *os.File // nil: none yet; open until the runner's end
}

func (o *outMap) keep(ns *os.File) {
	if ns == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns != nil {
		ns.Close()
		return
	}
	o.ns = ns
}

func (o *outMap) files() ipc.Files {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns == nil {
		return nil
	}
	return ipc.Files{api.FileOutMap: o.ns}
}

// run serves until the caller disconnects, then ends the caller's sandboxes.
func (c *caller) run() {
	c.peer.Serve()
	c.peer.Close()
	c.mu.Lock()
	c.gone = true
	var own []*sandbox
	for s := range c.own {
		own = append(own, s)
	}
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, s := range own {
		wg.Go(func() { s.end("its caller ended") })
	}
	wg.Wait()
	c.pass()
	c.e.left(c)
	c.e.leave()
}

// enter counts a caller, or work that must be finished. It returns false if the runner is ending.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting {
		e.callers++
		e.linger.stop()
	}
	return e.accepting
}

// leave undoes enter.
func (e *Engine) leave() {
	e.mu.Lock()
	e.callers--
	e.mu.Unlock()
	e.maybeIdle()
}

// maybeIdle ends the runner, or lets it linger, when no sandbox and no caller is left.
func (e *Engine) maybeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && !e.serving() && !e.linger.begin(e.stopLingering) {
		e.accepting = false
		close(e.idle)
	}
}

// serving reports whether there is a caller or a sandbox. e.mu is held.
func (e *Engine) serving() bool { return e.callers > 0 || len(e.sandboxes) > 0 }

// goesOn reports whether the runner expects to serve another sandbox.
func (e *Engine) goesOn() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepting && (e.serving() || e.linger.timer != nil)
}
