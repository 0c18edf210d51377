// Package serve is the work of demesne-proxy: it serves the ways out of all sandboxes of one
// runner, as package outlet draws it. Each has a proxy of its own (package proxy); a
// sandbox is who its sockets belong to.
//
//	held, err := serve.Confine() // for ever
//	err = serve.Run(socket)      // until the runner is gone
//
// The process is in the host's network namespace and in the runner's user namespace. It has
// no capability, writes to nothing but the descriptors it is given, and reads nothing but
// what resolving names and verifying certificates take: see [Confine].
package serve

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"demesne/proxy"
	"demesne/proxy/decisions"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/outlet"
	"demesne/runner/wire"
)

// server is what one runner has.
type server struct {
	peer *wire.Peer

	mu    sync.Mutex
	boxes map[string]*box
}

// box is the way out of one sandbox.
type box struct {
	proxy *proxy.Proxy
	log   *os.File

	mu     sync.Mutex
	serves bool
}

// Run serves the runner at the other end of socket, and returns when that is gone.
func Run(socket *os.File) error {
	s := &server{boxes: map[string]*box{}}
	s.peer = wire.NewPeer(wire.NewConn(socket), s.handle)
	return s.peer.Serve()
}

// calls that are answered at once are answered in the order they came in; closing waits for
// what is open.
func (s *server) handle(m *wire.Message) {
	if m.Op == outlet.OpClose {
		go s.answer(m)
		return
	}
	s.answer(m)
}

func (s *server) answer(m *wire.Message) {
	defer m.Close()
	reply, err := s.dispatch(m)
	if err != nil {
		s.peer.Fail(m, err)
		return
	}
	s.peer.Reply(m, reply, nil)
}

func (s *server) dispatch(m *wire.Message) (any, error) {
	switch m.Op {
	case outlet.OpServe:
		return with(m, func(b outlet.Serve) (any, error) { return s.open(b, m.File(outlet.FileLog)) })
	case outlet.OpListen:
		return with(m, func(b outlet.Listen) (any, error) { return nil, s.listen(b, m) })
	case outlet.OpPlan:
		return with(m, func(b runner.Egress) (any, error) { return planOf(b) })
	case outlet.OpChange:
		return with(m, func(b outlet.Change) (any, error) { return nil, s.change(b) })
	case outlet.OpBlocked:
		return with(m, func(b outlet.Target) (any, error) { return s.blocked(b.Sandbox) })
	case outlet.OpClose:
		return with(m, func(b outlet.Target) (any, error) { return s.close(b.Sandbox), nil })
	}
	return nil, wire.Errorf(wire.CodeInvalid, "serve call: unknown operation %q", m.Op)
}

func with[T any](m *wire.Message, do func(T) (any, error)) (any, error) {
	var body T
	if err := m.Decode(&body); err != nil {
		return nil, err
	}
	return do(body)
}

// open makes the proxy of a sandbox. log may be nil.
func (s *server) open(b outlet.Serve, log *os.File) (*outlet.Plan, error) {
	box, plan, err := s.newBox(b, log)
	if err != nil {
		if log != nil {
			log.Close()
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boxes[b.Sandbox] = box
	return plan, nil
}

func (s *server) newBox(b outlet.Serve, log *os.File) (*box, *outlet.Plan, error) {
	past, err := recall(b.Memory)
	if err != nil {
		return nil, nil, err
	}
	e, err := understand(b.Egress)
	if err != nil {
		return nil, nil, wire.Errorf(wire.CodeInvalid, "%w", err)
	}
	e.hold(past)
	c := proxy.Config{
		Sandbox: b.Sandbox, Policy: e.policy, V4: b.V4, V6: b.V6, Upstream: e.upstream, Secrets: e.secrets,
		CA: past.CA, Generation: past.Generation, Limits: proxy.Limits{Connections: connections(descriptors())},
	}
	s.note(&c, b)
	if log != nil {
		c.Log = log
	}
	if b.Egress.Ask > 0 {
		c.Approve = s.asker(b.Sandbox)
	}
	p, err := proxy.New(c)
	if err != nil {
		return nil, nil, err
	}
	plan := e.plan()
	plan.CA = p.CA()
	plan.Memory = e.remember(p.Authority(), past.Generation+1)
	return &box{proxy: p, log: log}, plan, nil
}

// note has the runner told of what must not be lost with this process.
func (s *server) note(c *proxy.Config, b outlet.Serve) {
	for _, x := range b.Spent {
		c.Spent = append(c.Spent, decisions.Spent(x))
	}
	c.Spend = func(x decisions.Spent) {
		spent := outlet.Spent(x)
		s.peer.Event(outlet.OpNote, outlet.Note{Sandbox: b.Sandbox, Spent: &spent}) // or there is no runner any more
	}
	c.Denied = func(x decisions.Blocked) {
		denied := runner.Blocked(x)
		s.peer.Event(outlet.OpNote, outlet.Note{Sandbox: b.Sandbox, Denied: &denied})
	}
}

// asker has the runner ask about names, and waits until the policy is what it is to be.
func (s *server) asker(sandbox string) proxy.Approver {
	return func(ctx context.Context, name policy.Name, port uint16) {
		q := outlet.Question{Sandbox: sandbox, Name: name.String(), Port: port}
		s.peer.Call(ctx, outlet.OpAsk, q, nil, nil) // or nobody answered
	}
}

func (s *server) find(sandbox string) (*box, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.boxes[sandbox]; b != nil {
		return b, nil
	}
	return nil, wire.Errorf(wire.CodeUnknown, "find sandbox %q: no such sandbox", sandbox)
}

// listen serves the sockets of m from here on.
func (s *server) listen(l outlet.Listen, m *wire.Message) error {
	b, err := s.find(l.Sandbox)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serves {
		return b.more(m)
	}
	k, err := takeSockets(m)
	if err != nil {
		k.close()
		return fmt.Errorf("listen for sandbox %q: %w", l.Sandbox, err)
	}
	if l.NoIPv6 {
		b.proxy.V6 = netip.Prefix{}
	}
	b.serves = true
	for _, n := range k.named {
		go b.proxy.ServeNamed(n)
	}
	if k.golang != nil {
		go b.proxy.ServeGo(k.golang)
	}
	go b.proxy.ServeProxy(k.proxy)
	go b.proxy.ServeDNS(k.dns)
	go b.proxy.ServeDNSTCP(k.dnsTCP)
	return nil
}

// more serves sockets for names besides.
func (b *box) more(m *wire.Message) error {
	named, err := takeNamed(m)
	for _, n := range named {
		go b.proxy.ServeNamed(n)
	}
	return err
}

func (s *server) change(c outlet.Change) error {
	b, err := s.find(c.Sandbox)
	if err != nil {
		return err
	}
	p, _, err := policyOf(c.Egress)
	if err != nil {
		return wire.Errorf(wire.CodeInvalid, "%w", err)
	}
	b.proxy.SetPolicy(p)
	return nil
}

func (s *server) blocked(sandbox string) ([]runner.Blocked, error) {
	b, err := s.find(sandbox)
	if err != nil {
		return nil, err
	}
	return b.blocked(), nil
}

func (b *box) blocked() (all []runner.Blocked) {
	for _, x := range b.proxy.Blocked() {
		all = append(all, runner.Blocked(x))
	}
	return all
}

// close ends what a sandbox has open, and gives what was blocked up to then. One that is not
// there has nothing.
func (s *server) close(sandbox string) []runner.Blocked {
	s.mu.Lock()
	b := s.boxes[sandbox]
	delete(s.boxes, sandbox)
	s.mu.Unlock()
	if b == nil {
		return nil
	}
	b.proxy.Close()
	if b.log != nil {
		b.log.Close()
	}
	return b.blocked()
}

// sockets are those of one sandbox.
type sockets struct {
	proxy, dnsTCP net.Listener
	golang        net.Listener // nil: none
	named         []net.Listener
	dns           net.PacketConn
}

func takeSockets(m *wire.Message) (k sockets, err error) {
	if k.proxy, err = listener(m.File(outlet.FileProxy)); err != nil {
		return k, err
	}
	if k.dnsTCP, err = listener(m.File(outlet.FileDNSTCP)); err != nil {
		return k, err
	}
	if k.dns, err = packets(m.File(outlet.FileDNS)); err != nil {
		return k, err
	}
	if f := m.File(outlet.FileGo); f != nil {
		if k.golang, err = listener(f); err != nil {
			return k, err
		}
	}
	k.named, err = takeNamed(m)
	return k, err
}

func takeNamed(m *wire.Message) (all []net.Listener, err error) {
	for i := 0; ; i++ {
		f := m.File(fmt.Sprintf("%s%d", outlet.FileNamed, i))
		if f == nil {
			return all, nil
		}
		l, err := listener(f)
		if err != nil {
			return all, err
		}
		all = append(all, l)
	}
}

func (k sockets) close() {
	for _, l := range append(k.named, k.proxy, k.dnsTCP, k.golang) {
		if l != nil {
			l.Close()
		}
	}
	if k.dns != nil {
		k.dns.Close()
	}
}

// listener takes f over.
func listener(f *os.File) (net.Listener, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	return net.FileListener(f)
}

func packets(f *os.File) (net.PacketConn, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	return net.FilePacketConn(f)
}
