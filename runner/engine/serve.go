package engine

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

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

// introTimeout bounds the wait for the first message of a caller.
const introTimeout = 30 * time.Second

// introduced reads a caller's first message. Only the socket's user can reach the socket. The check of the user
// namespace rejects that user's workloads in sandboxes.
func (e *Engine) introduced(conn *ipc.Conn) (intro api.Introduction, ok bool) {
	conn.SetReadDeadline(time.Now().Add(introTimeout))
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
	if err := m.Decode(&intro); err != nil || !intro.Frontend.Known() {
		return intro, false
	}
	id, err := api.Identify(ns)
	return intro, err == nil && id == e.machine.Boot.Callers
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
	e.setLinger(intro, e.machine.Boot.Alone)
	c := &caller{e: e, frontend: intro.Frontend, own: map[string]*sandbox.Sandbox{}, most: intro.Totals, slots: map[string]*slot{}}
	if intro.Quota != nil {
		c.quota = *intro.Quota
	}
	c.peer = ipc.NewPeer(conn, func(m *ipc.Message) { go c.serve(m) })
	hello := api.Hello{PID: os.Getpid(), Mode: e.machine.Boot.Mode}
	if err := conn.Send(ipc.Message{Op: api.OpHello}, hello, e.outMap.files()); err != nil {
		conn.Close()
	}
	go c.run()
}

// run serves until the caller disconnects, then ends the caller's sandboxes.
func (c *caller) run() {
	c.peer.Serve()
	c.peer.Close()
	c.mu.Lock()
	c.gone = true
	places := c.slots
	c.slots = nil
	var own []*sandbox.Sandbox
	for _, s := range c.own {
		own = append(own, s)
	}
	c.mu.Unlock()
	for _, s := range places {
		s.release()
	}
	var wg sync.WaitGroup
	for _, s := range own {
		wg.Go(func() { s.End("its caller ended") })
	}
	wg.Wait()
	c.removeForks()
	for _, s := range c.e.table.ofSpec(func(spec *runner.Spec) bool { return spec.Lifetime == runner.Persistent }) {
		if c.e.machine.Boot.Alone { // no other caller can reach it
			wg.Go(func() { s.Stop(0) })
			continue
		}
		s.CallerLeft(c)
	}
	wg.Wait()
	c.e.leave()
}
