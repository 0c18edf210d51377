// Package network connects a sandbox to the network. Each sandbox with egress has a gateway, which belongs to the
// runner. Another process, demesne-proxy, serves the gateway's sockets.
//
//	sandbox ── veth ── gateway's sockets ── demesne-proxy ── the host's network
//
//	w := network.NewEgress(asked)
//	w.Begin(proxy, …)       // the proxy parses the policy
//	w.Open(network.Gateway) // takes the gateway, in whose namespace the sandbox is made; before or during Begin
//	w.Serve()               // the proxy receives the sockets
//	defer w.Close()
//
// [Network] is the whole of a sandbox's network: its namespace, its egress if it has one, and its published ports.
// [New] makes it beside the other parts of a sandbox. [Admit], [AdmitPlan] and [Leaks] say, as pure functions of the
// Spec and of the proxy's plan, whether a sandbox may have the egress that its caller asked for.
//
// The sockets exist before the sandbox and wait for the proxy. If the runner is killed, the kernel closes its
// descriptors, and with them the gateway and its connections. The receipt's claims about egress ([Egress.Layers])
// were tested by netns.Gateway.Verify. Package proxyclient sends the policy and the proxy decides by it.
package network

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/netns"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// Egress is the network access of one sandbox. Its methods are safe for concurrent use, except that Serve must follow
// Begin and Open.
type Egress struct {
	asked     runner.Egress  // includes the values that the Spec no longer holds
	gateway   *netns.Gateway // nil: the sandbox has no network namespace
	arrivals  *supervised    // nil: it has one
	golang    *os.File       // listener of the sandbox's Go module proxy; may be nil
	routes    ipc.Files      // listeners of the routes, by the proxy's names for them
	listeners ipc.Files      // for the caller, until it has them
	ports     []uint16       // served by name, on a kernel without tproxy
	ported    []*os.File     // the sockets of ports
	hosts     []*os.File     // the sockets of HostPorts: the address at which a connection arrives is the one to reach
	done      chan struct{}  // closed when the proxy has answered; nil before Begin
	serves    bool           // Begin passed the sockets
	session   *proxyclient.ProxySession
	err       error

	groups *Groups // nil: the sandbox is in no group
	member runner.Member
	place  *place // nil before Open

	changing sync.Mutex // serializes changes

	mu      sync.Mutex
	used    bool                         // set by the first command
	waiting map[uint64]chan<- api.Answer // by question number
	number  uint64
}

// NewEgress returns an Egress for the rules in asked. Begin replaces asked; until then only its GoProxy, its Trust and
// the ports of its Routes are used.
func NewEgress(asked runner.Egress) *Egress {
	return &Egress{asked: asked, waiting: map[uint64]chan<- api.Answer{}}
}

// Join gives w a place in a group, when it gets its gateway.
func (w *Egress) Join(groups *Groups, m runner.Member) { w.groups, w.member = groups, m }

// Begin asks p for the plan of c.Egress. It sets the pools of c, and its sockets if they exist and do not depend on the
// plan. Close closes the files of c.
func (w *Egress) Begin(p *proxyclient.Proxy, c proxyclient.Config) {
	w.asked, w.done = c.Egress, make(chan struct{})
	c.Member, c.Dial = w.member, w.dialler()
	c.V4, c.V6 = netns.Pools()
	if w.gateway != nil && w.gateway.NamedErr == nil { // a prepared sandbox's
		s := w.sockets(w.gateway.Named)
		c.Sockets = &s
	}
	w.serves = c.Sockets != nil
	go func() {
		defer close(w.done)
		w.session, w.err = p.Open(c)
	}()
}

// dialler returns what the proxy connects to other members with, or nil.
func (w *Egress) dialler() proxyclient.Dial {
	if w.groups == nil {
		return nil
	}
	return func(ctx context.Context, name string, port uint16) (*os.File, error) {
		return w.groups.dial(ctx, w.member, name, port)
	}
}

// Settled waits for the proxy's answer and returns its plan.
func (w *Egress) Settled() (proxyclient.Plan, error) {
	<-w.done
	if w.err != nil {
		return proxyclient.Plan{}, w.err
	}
	return w.session.Plan(), nil
}

// Settle rejects rules that would let data of this sandbox, or of another one of the group, out. plan is e's plan.
func (w *Egress) Settle(spec *runner.Spec, e *runner.Egress, plan proxyclient.Plan) error {
	if w.place == nil {
		return nil
	}
	return w.groups.settle(w.place, openWord(e, plan.Open), holds(spec))
}

// Gateway makes a gateway and verifies that its sockets can be reached from inside. It is an argument for
// [Egress.Open].
func Gateway() (*netns.Gateway, error) {
	g, err := netns.NewGateway()
	if err != nil {
		return nil, &ipc.Error{
			Code: ipc.CodeRequirement, Text: err.Error(),
			Hint: "run demesne check to see what is missing, or use --egress none",
		}
	}
	if err := g.Verify(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// takePlace takes the place in the group, if there is one.
func (w *Egress) takePlace() (err error) {
	if w.groups != nil {
		w.place, err = w.groups.join(w.member, w.asked.Aliases, w.gateway.Sandbox)
	}
	return err
}

// Open takes the gateway that the function returns, for example [Gateway] or a gateway made in advance. The sandbox
// must be created in ns.
func (w *Egress) Open(gateway func() (*netns.Gateway, error)) (ns *netns.NS, err error) {
	if w.gateway, err = gateway(); err != nil {
		return nil, err
	}
	if err = w.takePlace(); err != nil {
		return nil, err
	}
	if w.asked.GoProxy {
		w.golang, err = w.gateway.Sandbox.Listen(goProxy)
	}
	if err == nil {
		err = w.listenRoutes()
	}
	if err == nil {
		err = w.listen()
	}
	return w.gateway.Sandbox, err
}

// Serve passes the gateway's sockets to the proxy, once the proxy has answered. It does nothing if Begin has passed them.
func (w *Egress) Serve() error {
	plan, err := w.Settled()
	if err != nil || w.serves {
		return err
	}
	if w.arrivals != nil {
		return w.session.Listen(w.arrivals.sockets())
	}
	named := w.gateway.Named
	if w.gateway.NamedErr != nil {
		if named, err = w.listenOn(plan.Ports); err != nil {
			return err
		}
	}
	return w.session.Listen(w.sockets(named))
}

// sockets returns the sockets to serve.
func (w *Egress) sockets(named []*os.File) proxyclient.Sockets {
	files := ipc.Files{proxyclient.FileProxy: w.gateway.Proxy, proxyclient.FileDNS: w.gateway.DNS, proxyclient.FileDNSTCP: w.gateway.DNSTCP}
	if w.golang != nil {
		files[proxyclient.FileGo] = w.golang
	}
	maps.Copy(files, w.routes)
	return proxyclient.Sockets{Listen: proxyclient.Listen{NoIPv6: w.gateway.IPv6Err != nil}, Files: files, Named: slices.Concat(named, w.hosts)}
}

func (w *Egress) addListener(name string, l *os.File) {
	if w.listeners == nil {
		w.listeners = ipc.Files{}
	}
	w.listeners[name] = l
}

// Close closes the sandbox's connections and its gateway.
func (w *Egress) Close() {
	if w.done != nil {
		if _, err := w.Settled(); err == nil {
			w.session.Close()
		}
	}
	w.groups.leave(w.place)
	if w.gateway != nil {
		w.gateway.Close()
	}
	if w.arrivals != nil {
		w.arrivals.close()
	}
	w.mu.Lock()
	for _, f := range w.listeners {
		f.Close()
	}
	w.mu.Unlock()
	for _, f := range slices.Concat(w.ported, w.hosts, []*os.File{w.golang}) {
		f.Close() // Close of a nil *os.File does nothing
	}
	closeAll(w.routes)
}

// Blocked returns the connections and lookups that were denied to the sandbox so far. The first call returns nil.
func (w *Egress) Blocked() []runner.Blocked {
	w.mu.Lock()
	used := w.used
	w.used = true
	w.mu.Unlock()
	if !used { // the first command: no request can precede it
		return nil
	}
	return w.session.Blocked()
}

// Since returns the entries that were blocked between two results of [Egress.Blocked]. It is pure.
func Since(before, now []runner.Blocked) []runner.Blocked {
	type key struct {
		host, reason string
		port         uint16
	}
	seen := map[key]int{}
	for _, b := range before {
		seen[key{b.Host, b.Reason, b.Port}] = b.Times
	}
	var all []runner.Blocked
	for _, b := range now {
		if b.Times -= seen[key{b.Host, b.Reason, b.Port}]; b.Times > 0 {
			all = append(all, b)
		}
	}
	return all
}

// Env returns environment variables that name the proxy and hold the secrets' placeholders. javaStore is the Java
// trust store for certFile; if it is empty, Java finds the system's. If certFile is empty, no certificate variable is set.
func (w *Egress) Env(certFile, javaStore string) []string {
	return environ(certFile, javaStore, w.asked.GoProxy, w.session.Plan().Env)
}

// Word returns the receipt's words for the plan, such as "open" or "filtered: 2 rules, 1 route, group shop".
func (w *Egress) Word() string {
	said := word(w.session.Plan(), len(w.asked.Routes))
	if w.place != nil {
		said += ", group " + w.asked.Group
	}
	if age := w.asked.PackageAge; age > 0 {
		said += ", packages of at least " + text.FormatAge(time.Duration(age))
	}
	return said
}

func word(p proxyclient.Plan, routes int) string {
	text := "open"
	if !p.Open {
		text = "filtered: " + count(p.Rules, "rule")
	}
	if routes > 0 {
		text += ", " + count(routes, "route")
	}
	return text
}

// count returns the number of things in words.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}
