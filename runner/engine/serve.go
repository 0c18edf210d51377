package engine

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// caller is one connection. The one-shot sandboxes made through it are its own and
// end with it.
type caller struct {
	e    *Engine
	peer *wire.Peer
	door runner.Door

	mu   sync.Mutex
	gone bool
	own  map[*sandbox]bool
	most *runner.Limits // what all sandboxes may have together; nil: no bound

	passing []string // snapshots that go with it
	untold  []string // forks that go with it until it has called about them
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
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely: others will be closed
			continue
		}
		f := os.NewFile(uintptr(fd), "caller")
		go e.greet(wire.NewConn(f))
	}
}

// introduced takes a caller's first message. The socket lies where only its user can
// search; the user namespace it shows keeps out what that user runs in sandboxes.
func (e *Engine) introduced(conn *wire.Conn) (intro protocol.Introduction, ok bool) {
	conn.SetReadDeadline(time.Now().Add(initTimeout))
	defer conn.SetReadDeadline(time.Time{})
	m, err := conn.Recv()
	if err != nil {
		return intro, false
	}
	defer m.Close()
	ns := m.File(protocol.FileUserNS)
	if m.Op != protocol.OpHello || ns == nil {
		return intro, false
	}
	defer ns.Close()
	if err := m.Decode(&intro); err != nil || !intro.Door.Known() {
		return intro, false
	}
	id, err := protocol.Identify(ns)
	return intro, err == nil && id == e.boot.Callers
}

// greet starts serving a connection, unless we are on our way out: then the caller
// sees EOF before the greeting and starts a runner of its own.
func (e *Engine) greet(conn *wire.Conn) {
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
	c.peer = wire.NewPeer(conn, func(m *wire.Message) { go c.serve(m) })
	hello := protocol.Hello{PID: os.Getpid(), Mode: e.boot.Mode}
	if err := c.peer.Event(protocol.OpHello, hello); err != nil {
		conn.Close()
	}
	go c.run()
}

// run ends when the caller does, however it went, and takes its sandboxes along.
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

// enter counts a caller in, or something that has to be finished, unless we are on our way out.
func (e *Engine) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting {
		e.callers++
		e.linger.stop()
	}
	return e.accepting
}

// leave counts it out.
func (e *Engine) leave() {
	e.mu.Lock()
	e.callers--
	e.mu.Unlock()
	e.maybeIdle()
}

// maybeIdle ends the runner, or lets it linger, when no sandbox is left and no caller.
func (e *Engine) maybeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && !e.serving() && !e.linger.begin(e.stopLingering) {
		e.accepting = false
		close(e.idle)
	}
}

// serving reports whether there is a caller or a sandbox. e.mu is held.
func (e *Engine) serving() bool { return e.callers > 0 || len(e.boxes) > 0 }

// goesOn reports whether the runner will be there for another sandbox.
func (e *Engine) goesOn() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepting && (e.serving() || e.linger.timer != nil)
}
