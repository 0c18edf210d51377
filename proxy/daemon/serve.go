package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"demesne/proxy"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// server serves one runner.
type server struct {
	peer   *ipc.Peer
	waiter *waiter
	groups groups

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

// sandbox is the egress of one sandbox.
type sandbox struct {
	proxy   *proxy.Proxy
	member  runner.Member // zero: it is in no group
	aliases []string
	files   []*os.File // the log, the files of usage records, and the gates of routes

	mu     sync.Mutex
	serves bool
	closed bool
	waits  []int32 // numbers of sockets with the waiter

	arriving *os.File // see arrivals; nil until its first connection
}

// serveRunner serves the runner at the other end of socket, and returns when the runner ends.
func serveRunner(socket *os.File) error {
	d, err := newWaiter()
	if err != nil {
		return err
	}
	s := &server{waiter: d, sandboxes: map[string]*sandbox{}}
	s.peer = ipc.NewPeer(ipc.NewConn(socket), s.handle)
	return s.peer.Serve()
}

// handle answers most calls in order of arrival. A close call waits for open connections, so it runs on its own
// goroutine.
func (s *server) handle(m *ipc.Message) {
	if m.Op == proxyclient.OpClose {
		go s.answer(m)
		return
	}
	s.answer(m)
}

func (s *server) answer(m *ipc.Message) {
	defer m.Close()
	reply, err := s.dispatch(m)
	if err != nil {
		s.peer.Fail(m, err)
		return
	}
	s.peer.Reply(m, reply, nil)
}

func (s *server) dispatch(m *ipc.Message) (any, error) {
	switch m.Op {
	case proxyclient.OpServe:
		return with(m, func(b proxyclient.Serve) (any, error) { return s.open(b, m) })
	case proxyclient.OpListen:
		return with(m, func(b proxyclient.Listen) (any, error) { return nil, s.listen(b, m) })
	case proxyclient.OpPlan:
		return with(m, func(b runner.Egress) (any, error) { return planOf(b) })
	case proxyclient.OpChange:
		return with(m, func(b proxyclient.Change) (any, error) { return nil, s.change(b) })
	case proxyclient.OpBlocked:
		return with(m, func(b proxyclient.Target) (any, error) { return s.blocked(b.Sandbox) })
	case proxyclient.OpClose:
		return with(m, func(b proxyclient.Target) (any, error) { return s.close(b.Sandbox), nil })
	}
	return nil, ipc.Errorf(ipc.CodeInvalid, "serve call: unknown operation %q", m.Op)
}

func with[T any](m *ipc.Message, do func(T) (any, error)) (any, error) {
	var body T
	if err := m.Decode(&body); err != nil {
		return nil, err
	}
	return do(body)
}

// open makes the proxy of a sandbox, with the files of m, and starts serving its sockets if m brings them. The log may be
// missing.
func (s *server) open(b proxyclient.Serve, m *ipc.Message) (*proxyclient.Plan, error) {
	x := &sandbox{}
	plan, err := s.fill(x, b, m)
	if err != nil {
		x.closeFiles()
		return nil, err
	}
	x.member, x.aliases = b.Member, b.Egress.Aliases
	s.groups.add(x.member, x.aliases, 1)
	s.mu.Lock()
	s.sandboxes[b.Sandbox] = x
	s.mu.Unlock()
	if b.Listen != nil {
		if err := s.listen(*b.Listen, m); err != nil {
			s.close(b.Sandbox)
			return nil, err
		}
	}
	return plan, nil
}

func (s *server) fill(x *sandbox, b proxyclient.Serve, m *ipc.Message) (*proxyclient.Plan, error) {
	past, err := recall(b.Memory)
	if err != nil {
		return nil, err
	}
	e, err := compile(b.Egress)
	if err != nil {
		return nil, ipc.Errorf(ipc.CodeInvalid, "%w", err)
	}
	e.hold(past)
	c := proxy.Config{
		Sandbox: b.Sandbox, Policy: e.policy, V4: b.V4, V6: b.V6, Upstream: e.upstream, Secrets: e.secrets, Routes: e.routes, Aging: e.aging,
		CA: past.CA, Generation: past.Generation, Limits: proxy.Limits{Connections: connections(descriptors())},
	}
	s.note(&c, b)
	if log := m.File(proxyclient.FileLog); log != nil {
		c.Log, x.files = log, append(x.files, log)
	}
	x.files = append(x.files, recordTo(e.routes, b.Egress.Routes, m)...)
	gates, err := gateTo(e.routes, b.Egress.Routes, m)
	if x.files = append(x.files, gates...); err != nil {
		return nil, err
	}
	if b.Member != (runner.Member{}) {
		c.Group = &membership{all: &s.groups, peer: s.peer, sandbox: b.Sandbox, member: b.Member, name: b.Egress.Group}
	}
	if b.Egress.Ask > 0 {
		c.Approve = s.asker(b.Sandbox)
	}
	if x.proxy, err = proxy.New(c); err != nil {
		return nil, err
	}
	plan := e.plan()
	plan.CA = x.proxy.CA()
	plan.Memory = e.remember(x.proxy.Authority(), past.Generation+1)
	return plan, nil
}

func (b *sandbox) closeFiles() {
	for _, f := range b.files {
		f.Close()
	}
}

// note makes the proxy send the runner the state that must survive this process.
func (s *server) note(c *proxy.Config, b proxyclient.Serve) {
	for _, x := range b.Spent {
		c.Spent = append(c.Spent, proxy.Spent(x))
	}
	c.Spend = func(x proxy.Spent) {
		spent := proxyclient.Spent(x)
		s.peer.Event(proxyclient.OpNote, proxyclient.Note{Sandbox: b.Sandbox, Spent: &spent}) // fails only if the runner has ended
	}
	c.Denied = func(x proxy.Blocked) {
		denied := runner.Blocked(x)
		s.peer.Event(proxyclient.OpNote, proxyclient.Note{Sandbox: b.Sandbox, Denied: &denied})
	}
}

// asker returns an Approver that makes the runner ask about a name. The Approver returns when
// the policy has the answer.
func (s *server) asker(sandbox string) proxy.Approver {
	return func(ctx context.Context, name policy.Name, port uint16) {
		q := proxyclient.Question{Sandbox: sandbox, Name: name.String(), Port: port}
		s.peer.Call(ctx, proxyclient.OpAsk, q, nil, nil) // on an error nothing was answered
	}
}

func (s *server) find(sandbox string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.sandboxes[sandbox]; b != nil {
		return b, nil
	}
	return nil, ipc.NoSuchSandbox(sandbox)
}

// listen starts serving the sockets of m.
func (s *server) listen(l proxyclient.Listen, m *ipc.Message) error {
	b, err := s.find(l.Sandbox)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.serves {
		if err := s.listenOnce(b, l, m); err != nil {
			return fmt.Errorf("listen for sandbox %q: %w", l.Sandbox, err)
		}
	}
	for i := 0; ; i++ {
		f := m.File(fmt.Sprintf("%s%d", proxyclient.FileNamed, i))
		if f == nil {
			return nil
		}
		if err := s.wait(b, f, b.tcp(b.proxy.ServeNamed)); err != nil {
			return fmt.Errorf("listen for sandbox %q: %w", l.Sandbox, err)
		}
	}
}

// listenOnce serves the sockets of which a sandbox has one each.
func (s *server) listenOnce(b *sandbox, l proxyclient.Listen, m *ipc.Message) error {
	if l.NoIPv6 {
		b.proxy.V6 = netip.Prefix{}
	}
	b.serves = true
	if f := m.File(proxyclient.FileArrivals); f != nil {
		host, _ := os.Hostname()
		b.proxy.Localhost = []string{"localhost", strings.ToLower(host)}
		return s.wait(b, f, b.arrivals)
	}
	err := errors.Join(
		s.wait(b, m.File(proxyclient.FileProxy), b.tcp(b.proxy.ServeProxy)),
		s.wait(b, m.File(proxyclient.FileDNS), b.udp(b.proxy.ServeDNS)),
		s.wait(b, m.File(proxyclient.FileDNSTCP), b.tcp(b.proxy.ServeDNSTCP)),
	)
	if golang := m.File(proxyclient.FileGo); golang != nil {
		err = errors.Join(err, s.wait(b, golang, b.tcp(b.proxy.ServeGo)))
	}
	for _, r := range b.proxy.Routes {
		err = errors.Join(err, s.wait(b, m.File(proxyclient.FileRoute(r.Port)), b.tcp(func(l net.Listener) error { return b.proxy.ServeRoute(l, r.Port) })))
	}
	return err
}

// wait serves f from its first connection on. b is locked.
func (s *server) wait(b *sandbox, f *os.File, serve func(*os.File)) error {
	if f == nil {
		return os.ErrInvalid
	}
	number, err := s.waiter.wait(f, serve)
	if err == nil {
		b.waits = append(b.waits, number)
	}
	return err
}

// tcp returns a function that serves a listening socket.
func (b *sandbox) tcp(serve func(net.Listener) error) func(*os.File) {
	return func(f *os.File) { served(b, f, net.FileListener, serve) }
}

func (b *sandbox) udp(serve func(net.PacketConn) error) func(*os.File) {
	return func(f *os.File) { served(b, f, net.FilePacketConn, serve) }
}

// served converts f for serve. If the process is out of descriptors, it retries until some are free.
func served[T any](b *sandbox, f *os.File, open func(*os.File) (T, error), serve func(T) error) {
	defer f.Close()
	for !b.over() {
		if l, err := open(f); err == nil {
			f.Close()
			serve(l)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *sandbox) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func (s *server) change(c proxyclient.Change) error {
	b, err := s.find(c.Sandbox)
	if err != nil {
		return err
	}
	e, err := compile(c.Egress)
	if err != nil {
		return ipc.Errorf(ipc.CodeInvalid, "%w", err)
	}
	b.proxy.SetPolicy(e.policy)
	for _, r := range e.routes {
		err = errors.Join(err, b.proxy.SetRouteHeader(r.Port, r.Header))
	}
	return err
}

func (s *server) blocked(sandbox string) ([]runner.Blocked, error) {
	b, err := s.find(sandbox)
	if err != nil {
		return nil, err
	}
	return b.blocked(), nil
}

func (b *sandbox) blocked() (all []runner.Blocked) {
	for _, x := range b.proxy.Blocked() {
		all = append(all, runner.Blocked(x))
	}
	return all
}

// close closes a sandbox's connections and returns what was blocked until then. It returns nil for an unknown
// sandbox.
func (s *server) close(sandbox string) []runner.Blocked {
	s.mu.Lock()
	b := s.sandboxes[sandbox]
	delete(s.sandboxes, sandbox)
	s.mu.Unlock()
	if b == nil {
		return nil
	}
	s.groups.add(b.member, b.aliases, -1)
	b.mu.Lock()
	waits := b.waits
	b.closed, b.waits = true, nil
	b.arriving.Close() // harmless on a nil file
	b.mu.Unlock()
	for _, number := range waits {
		s.waiter.leave(number)
	}
	b.proxy.Close()
	b.closeFiles()
	return b.blocked()
}
