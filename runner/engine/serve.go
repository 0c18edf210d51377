package engine

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/wire"
)

// caller is one connection. The one-shot sandboxes made through it are its own and
// end with it.
type caller struct {
	e    *Engine
	peer *wire.Peer

	mu   sync.Mutex
	gone bool
	own  map[*sandbox]bool
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
			continue
		}
		f := os.NewFile(uintptr(fd), "caller")
		go e.greet(wire.NewConn(f))
	}
}

// introduced takes a caller's first message. The socket lies where only its user can
// search; the user namespace it shows keeps out what that user runs in sandboxes.
func (e *Engine) introduced(conn *wire.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(initTimeout))
	defer conn.SetReadDeadline(time.Time{})
	m, err := conn.Recv()
	if err != nil {
		return false
	}
	defer m.Close()
	ns := m.File(runner.FileUserNS)
	if m.Op != runner.OpHello || ns == nil {
		return false
	}
	defer ns.Close()
	id, err := runner.Identify(ns)
	return err == nil && id == e.boot.Callers
}

// greet starts serving a connection, unless we are on our way out: then the caller
// sees EOF before the greeting and starts a runner of its own.
func (e *Engine) greet(conn *wire.Conn) {
	e.mu.Lock()
	if !e.accepting {
		e.mu.Unlock()
		conn.Close()
		return
	}
	e.callers++
	e.mu.Unlock()
	if !e.introduced(conn) {
		conn.Close()
		e.leave()
		return
	}
	c := &caller{e: e, own: map[*sandbox]bool{}}
	c.peer = wire.NewPeer(conn, func(m *wire.Message) { go c.serve(m) })
	hello := runner.Hello{Protocol: runner.Protocol, PID: os.Getpid(), Mode: e.boot.Mode, UIDMap: e.boot.UIDMap}
	if err := c.peer.Event(runner.OpHello, hello); err != nil {
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
	c.e.left(c)
	c.e.leave()
}

// leave counts a caller out.
func (e *Engine) leave() {
	e.mu.Lock()
	e.callers--
	e.mu.Unlock()
	e.maybeIdle()
}

// maybeIdle ends the runner when no sandbox is left and no caller.
func (e *Engine) maybeIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.accepting && e.callers == 0 && len(e.boxes) == 0 {
		e.accepting = false
		close(e.idle)
	}
}

// goesOn says whether anybody needs the runner.
func (e *Engine) goesOn() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.accepting && (e.callers > 0 || len(e.boxes) > 0)
}

// serve answers one call.
func (c *caller) serve(m *wire.Message) {
	defer m.Close()
	reply, files, err := c.dispatch(m)
	if err != nil {
		c.peer.Fail(m, err)
	} else {
		c.peer.Reply(m, reply, files)
	}
	for _, f := range files {
		f.Close()
	}
}

func (c *caller) dispatch(m *wire.Message) (any, wire.Files, error) {
	switch m.Op {
	case runner.OpCreate:
		var spec runner.Spec
		if err := m.Decode(&spec); err != nil {
			return nil, nil, err
		}
		reply, err := c.create(spec, m)
		return reply, nil, err
	case runner.OpExec:
		var req runner.ExecRequest
		if err := m.Decode(&req); err != nil {
			return nil, nil, err
		}
		s, rec, err := c.e.locate(req.Sandbox)
		if err == nil && s == nil {
			err = stopped(rec)
		}
		if err != nil {
			return nil, nil, err
		}
		return s.exec(c, req, m)
	case runner.OpAttach:
		var t runner.Target
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		attached, files, err := c.attach(t)
		return attached, files, err
	case runner.OpDiff:
		var t runner.Target
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		diff, err := c.e.diff(t.Sandbox)
		return diff, nil, err
	case runner.OpLayer:
		var t runner.LayerRequest
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		layered, err := c.e.layer(t, m.File(runner.FileLayer))
		return layered, nil, err
	case runner.OpFork:
		var t runner.ForkRequest
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		forked, err := c.e.fork(t)
		return forked, nil, err
	case runner.OpRestart:
		var t runner.Restart
		if err := m.Decode(&t); err != nil {
			return nil, nil, err
		}
		reply, err := c.restart(t, m)
		return reply, nil, err
	case runner.OpWait, runner.OpSignal, runner.OpResize:
		return c.dispatchExec(m)
	case runner.OpOpen, runner.OpStop, runner.OpInspect:
		return c.dispatchSandbox(m)
	case runner.OpEgress, runner.OpAnswer:
		return nil, nil, c.dispatchEgress(m)
	case runner.OpList:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		return c.e.list(), nil, nil
	case runner.OpCheck:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		return c.e.check(), nil, nil
	case runner.OpSweep:
		if err := c.e.settled(); err != nil {
			return nil, nil, err
		}
		removed, err := c.e.sweep()
		return removed, nil, err
	}
	return nil, nil, wire.Errorf(wire.CodeInvalid, "serve call: unknown operation %q", m.Op)
}

func (c *caller) dispatchExec(m *wire.Message) (any, wire.Files, error) {
	var t runner.ExecTarget
	if err := m.Decode(&t); err != nil {
		return nil, nil, err
	}
	x, err := c.e.findExec(t)
	if err != nil {
		return nil, nil, err
	}
	switch m.Op {
	case runner.OpSignal:
		return nil, nil, x.signal(syscall.Signal(t.Signal))
	case runner.OpResize:
		return nil, nil, x.resize(t.TTY)
	}
	select {
	case <-x.done:
		return x.result, nil, nil
	case <-c.peer.Done():
		return nil, nil, wire.ErrClosed
	}
}

func (c *caller) dispatchSandbox(m *wire.Message) (any, wire.Files, error) {
	var t runner.Target
	if err := m.Decode(&t); err != nil {
		return nil, nil, err
	}
	if err := c.e.settled(); err != nil {
		return nil, nil, err
	}
	s, rec, err := c.e.locate(t.Sandbox)
	switch {
	case s == nil:
		reply, err := c.e.absent(m.Op, t, rec, err)
		return reply, nil, err
	case m.Op == runner.OpInspect:
		return s.info(), nil, nil
	case m.Op == runner.OpOpen:
		opened, err := s.open()
		return opened, nil, err
	}
	return nil, nil, s.stop(t.Keep)
}

// find returns the sandbox with that id, or that name: one that lives before one that
// is being forgotten.
func (e *Engine) find(idOrName string) (*sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.boxes[idOrName]; s != nil {
		return s, nil
	}
	var over *sandbox
	for _, s := range e.boxes {
		switch {
		case idOrName == "" || s.spec.Name != idOrName:
		case s.over():
			over = s
		default:
			return s, nil
		}
	}
	if over != nil {
		return over, nil
	}
	return nil, wire.Errorf(wire.CodeUnknown, "find sandbox %q: no such sandbox", idOrName)
}

func (e *Engine) findExec(t runner.ExecTarget) (*execution, error) {
	e.mu.Lock()
	x := e.recent[execKey{t.Sandbox, t.Exec}]
	e.mu.Unlock()
	if x == nil {
		return nil, wire.Errorf(wire.CodeUnknown, "find command %d of sandbox %q: no such command", t.Exec, t.Sandbox)
	}
	return x, nil
}

func (e *Engine) list() []runner.Info {
	e.mu.Lock()
	var boxes []*sandbox
	for _, s := range e.boxes {
		boxes = append(boxes, s)
	}
	e.mu.Unlock()
	infos, live := make([]runner.Info, 0, len(boxes)), map[string]bool{}
	for _, s := range boxes {
		if s.over() && s.stays() {
			continue
		}
		infos, live[s.id] = append(infos, s.info()), true
	}
	return append(infos, e.listAsleep(live)...)
}

// claim registers s under its id and name; a name belongs to one sandbox that lives or is kept.
func (e *Engine) claim(s *sandbox) error {
	if s.spec.Name != "" {
		if rec, err := e.asleep(s.spec.Name); err == nil {
			return wire.Errorf(wire.CodeExists, "create sandbox %q: the name is in use by %s", s.spec.Name, rec.Info.ID)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.boxes {
		if s.spec.Name != "" && !other.over() && (other.spec.Name == s.spec.Name || other.id == s.spec.Name) {
			return wire.Errorf(wire.CodeExists, "create sandbox %q: the name is in use by %s", s.spec.Name, other.id)
		}
	}
	e.boxes[s.id] = s
	return nil
}

// adopt makes c the owner of a one-shot sandbox; false if c is gone already.
func (c *caller) adopt(s *sandbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.own[s] = true
	}
	return !c.gone
}

func (c *caller) disown(s *sandbox) {
	c.mu.Lock()
	delete(c.own, s)
	c.mu.Unlock()
}

// validName is what a name may be: it is also a file name and a word in a shell.
func validName(name string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case name == "":
		return nil
	case len(name) > 64:
		return wire.Errorf(wire.CodeInvalid, "create sandbox: name is longer than 64 bytes")
	case strings.Trim(name, letters+"_.-") != "", strings.IndexAny(name[:1], letters) != 0:
		return wire.Errorf(wire.CodeInvalid, "create sandbox %q: name may have letters, digits and _.-, the first a letter or digit", name)
	}
	return nil
}
