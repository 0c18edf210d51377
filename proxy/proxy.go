package proxy

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// Resolver looks up the addresses of a name. *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to a literal address. *net.Dialer implements it.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Config configures the proxy of one sandbox. The zero Config denies everything.
type Config struct {
	Sandbox  string // sandbox id, for the log
	Policy   policy.Policy
	V4, V6   netip.Prefix                       // pools of fake addresses that stand for names; invalid: no addresses of that family
	Resolver Resolver                           // nil: the host's resolver
	Dialer   Dialer                             // nil: plain TCP
	Upstream *Upstream                          // nil: no upstream proxy
	Own      func(netip.AddrPort) (bool, error) // reports whether a connection to that address ends on this machine; nil: OwnAddress
	Secrets  []Secret                           // credentials that the proxy inserts into requests
	CA       []byte                             // Proxy.Authority of the proxy that this one replaces; nil: make a new CA
	Roots    *x509.CertPool                     // roots that verify the hosts of secrets and routes; nil: the host's roots
	Routes   []Route                            // HTTP services on the sandbox's loopback; see Proxy.ServeRoute
	Aging    *Aging                             // nil: packages may have any age
	Group    Group                              // nil: the sandbox is in no group
	Approve  Approver                           // nil: names that no rule covers are denied
	Log      io.Writer                          // receives one Record as JSON a line; nil: no log
	Limits   Limits

	// Localhost lists names to which DNS gives the address of the loopback, unless a rule allows them: the sandbox has no
	// file that does. Set it before serving.
	Localhost []string

	Spent  []Spent       // budgets spent under the proxies that this one replaces
	Spend  func(Spent)   // reports at least the amount spent, before the traffic is forwarded; nil: no reports
	Denied func(Blocked) // called when a denial has happened 1, 2, 4, 8… times; nil: no reports

	Generation int // number of earlier proxies of this sandbox, whose fake addresses it may remember
}

// Limits bound the resources that a sandbox can use. Zero means the default.
type Limits struct {
	Connections int           // at once, of all kinds: 512. A tunnel takes two descriptors, and four more while it splices
	Names       int           // names that DNS gives addresses for: 16384
	Log         int64         // bytes: 64 MiB, a quarter of it for denials. When it is full, nothing is allowed
	Head        time.Duration // to receive a request's head or a ClientHello: 10 s
	ReadOn      time.Duration // to read the usage of a response whose client has disconnected: 15 min
	Dial        time.Duration // to connect, for all addresses of a name together: 30 s
}

func (l Limits) filled() Limits {
	fill(&l.Connections, 512)
	fill(&l.Names, 16384)
	fill(&l.Log, 64<<20)
	fill(&l.Head, 10*time.Second)
	fill(&l.Dial, 30*time.Second)
	fill(&l.ReadOn, 15*time.Minute)
	return l
}

func fill[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Proxy is the egress proxy of one sandbox. Its methods are safe for concurrent use.
type Proxy struct {
	Config
	policy  atomic.Pointer[policy.Policy]
	names   *names
	log     *journal
	spent   budgets
	asking  asking
	flows   atomic.Int64 // flows that have not ended
	secrets secrets
	hidden  *redact.Values // values of the secrets
	issuer  *issuer        // nil without secrets and Aging
	aging   *aging         // nil: packages may have any age

	web     func() *web         // starts the HTTP servers once
	started atomic.Pointer[web] // set by web once it has started

	connections
	routes // with the methods about routes
	cancel context.CancelFunc
}

// New returns a proxy that serves nothing yet. Close releases its resources.
func New(c Config) (*Proxy, error) {
	if c.V4.IsValid() && !c.V4.Addr().Is4() || c.V6.IsValid() && !c.V6.Addr().Is6() {
		return nil, fmt.Errorf("make proxy: pools %v and %v are of the wrong families", c.V4, c.V6)
	}
	c.Limits = c.Limits.filled()
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.Dialer == nil {
		d := &net.Dialer{}
		d.SetMultipathTCP(false)
		c.Dialer = d
	}
	if c.Own == nil {
		c.Own = OwnAddress
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{Config: c, connections: connections{ctx: ctx, most: c.Limits.Connections, held: map[io.Closer]bool{}}, cancel: cancel}
	p.names = newNames(c.V4, c.V6, c.Limits.Names, c.Generation)
	p.secrets = slices.Clone(c.Secrets)
	p.hidden = p.secrets.values()
	p.log = newJournal(c)
	p.log.hidden = p.hidden
	p.spent.before, p.spent.tell = slices.Clone(c.Spent), c.Spend
	p.aging = newAging(c.Aging)
	if len(p.secrets) > 0 || p.aging != nil {
		var err error
		if p.issuer, err = newIssuer(c.Sandbox, c.CA); err != nil {
			return nil, fmt.Errorf("make proxy: %w", err)
		}
	}
	if err := p.routes.parse(p); err != nil {
		cancel()
		return nil, fmt.Errorf("make proxy: %w", err)
	}
	p.SetPolicy(c.Policy)
	p.web = sync.OnceValue(p.startWeb)
	return p, nil
}

// SetPolicy replaces the policy for later decisions. Open tunnels continue. It logs each rule that was added or
// removed.
func (p *Proxy) SetPolicy(pol policy.Policy) {
	before := p.policy.Swap(&pol)
	if before == nil { // the call by New
		return
	}
	for _, r := range changes(*before, pol) {
		p.log.write(r)
	}
	p.started.Load().forget()
}

// changes returns a record for each rule that was added or removed between two policies.
func changes(before, after policy.Policy) (all []Record) {
	say := func(what string, rules, others []policy.Rule) {
		for _, r := range rules {
			if !slices.ContainsFunc(others, func(o policy.Rule) bool { return o.String() == r.String() }) {
				all = append(all, Record{Via: "policy", Rule: r.String(), Verdict: Changed, Reason: fmt.Sprintf(what, r)})
			}
		}
	}
	say("rule %q was added to the allowed", after.Allowed(), before.Allowed())
	say("rule %q was added to the denied", after.Denied(), before.Denied())
	say("rule %q was removed from the allowed", before.Allowed(), after.Allowed())
	say("rule %q was removed from the denied", before.Denied(), after.Denied())
	return all
}

// Blocked returns the distinct denials, in order of first occurrence.
func (p *Proxy) Blocked() []Blocked { return p.log.denials() }

// Close closes all listeners and connections. It waits up to one second for their flows to end, and then flushes
// the log.
func (p *Proxy) Close() error {
	p.cancel()
	p.closeAll()
	err := p.started.Load().close()
	p.closeIdle()
	p.settle()
	p.log.finish()
	return err
}

// ServeProxy serves HTTP, CONNECT and SOCKS5 until Close, when it returns nil.
func (p *Proxy) ServeProxy(l net.Listener) error { return p.accept(l, p.serveProxy) }

// ServeNamed serves connections whose local address stands for a name.
func (p *Proxy) ServeNamed(l net.Listener) error { return p.accept(l, p.serveNamed) }

// ServeDNS answers queries over UDP.
func (p *Proxy) ServeDNS(c net.PacketConn) error {
	return p.serveDNS(c, &dns.Server{PacketConn: c, UDPSize: dns.MinMsgSize})
}

// ServeDNSTCP answers queries over TCP.
func (p *Proxy) ServeDNSTCP(l net.Listener) error {
	return p.serveDNS(l, &dns.Server{Listener: &counted{l, p}, ReadTimeout: p.Limits.Head, MaxTCPQueries: -1})
}
