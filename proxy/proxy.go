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

	"demesne/proxy/audit"
	"demesne/proxy/hostaddr"
	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// Resolver finds the addresses of a name. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to a literal address. *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Config is what one sandbox's proxy works with. The zero Config denies everything.
type Config struct {
	Sandbox  string // its id, for the log
	Policy   policy.Policy
	V4, V6   netip.Prefix                       // pools that stand for names; an invalid one: no such addresses
	Resolver Resolver                           // nil: the host's
	Dialer   Dialer                             // nil: plain TCP
	Upstream *Upstream                          // nil: none
	Own      func(netip.AddrPort) (bool, error) // whether a connection to there ends on this machine; nil: hostaddr.Own
	Secrets  []Secret                           // that requests are given
	CA       []byte                             // Proxy.Authority of a proxy that this one replaces; nil: a new one
	Roots    *x509.CertPool                     // whom to trust about the hosts of secrets; nil: whom the host trusts
	Approve  Approver                           // nil: what no rule speaks of is denied
	Log      io.Writer                          // a audit.Record as JSON a line; nil: none
	Limits   Limits

	Spent  []audit.Spent       // of budgets, by proxies that this one replaces
	Spend  func(audit.Spent)   // is told before what it tells of goes on, of as much or more; nil: nobody is
	Denied func(audit.Blocked) // is told of what was denied once, twice, four times…; nil: nobody is

	Generation int // proxies that served the sandbox before, of which it may remember addresses
}

// Limits bound what a sandbox can use up. Zero: the default.
type Limits struct {
	Connections int           // at once, of all kinds: 512. A tunnel takes two descriptors, and four more while it moves much
	Names       int           // that DNS gives addresses for: 16384
	Log         int64         // bytes: 64 MiB, a quarter for denials. Without room for more nothing is allowed
	Head        time.Duration // for a request's head, a ClientHello: 10 s
	Dial        time.Duration // for all addresses of a name: 30 s
}

func (l Limits) filled() Limits {
	fill(&l.Connections, 512)
	fill(&l.Names, 16384)
	fill(&l.Log, 64<<20)
	fill(&l.Head, 10*time.Second)
	fill(&l.Dial, 30*time.Second)
	return l
}

func fill[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Proxy is one sandbox's way out. Its methods may be called at any time.
type Proxy struct {
	Config
	policy  atomic.Pointer[policy.Policy]
	names   *names
	log     *journal
	spent   budgets
	asking  asking
	flows   atomic.Int64 // that have not ended
	secrets secrets
	hidden  *redact.Values // of the secrets
	issuer  *issuer        // nil without secrets

	web     func() *web         // once
	started atomic.Pointer[web] // by that

	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	held  map[io.Closer]bool // listeners and connections, to close
	conns int                // of held
}

// New makes a proxy that serves nothing yet. Close ends it.
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
		c.Own = hostaddr.Own
	}
	p := &Proxy{Config: c, held: map[io.Closer]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.names = newNames(c.V4, c.V6, c.Limits.Names, c.Generation)
	p.secrets = slices.Clone(c.Secrets)
	p.hidden = p.secrets.values()
	p.log = newJournal(c)
	p.log.hidden = p.hidden
	p.spent.before, p.spent.tell = slices.Clone(c.Spent), c.Spend
	if len(p.secrets) > 0 {
		var err error
		if p.issuer, err = newIssuer(c.Sandbox, c.CA); err != nil {
			return nil, fmt.Errorf("make proxy: %w", err)
		}
	}
	p.SetPolicy(c.Policy)
	p.web = sync.OnceValue(p.startWeb)
	return p, nil
}

// SetPolicy decides what comes next. Tunnels that are open stay. Rules that are new, or gone,
// are written down.
func (p *Proxy) SetPolicy(pol policy.Policy) {
	before := p.policy.Swap(&pol)
	if before == nil { // by New
		return
	}
	for _, r := range changes(*before, pol) {
		p.log.write(r)
	}
	p.forget()
}

// changes are records of what makes one policy another. It is pure.
func changes(before, after policy.Policy) (all []audit.Record) {
	say := func(what string, rules, others []policy.Rule) {
		for _, r := range rules {
			if !slices.ContainsFunc(others, func(o policy.Rule) bool { return o.String() == r.String() }) {
				all = append(all, audit.Record{Via: "policy", Rule: r.String(), Verdict: audit.Changed, Reason: fmt.Sprintf(what, r)})
			}
		}
	}
	say("rule %q allows from now on", after.Allowed(), before.Allowed())
	say("rule %q denies from now on", after.Denied(), before.Denied())
	say("rule %q allows no longer", before.Allowed(), after.Allowed())
	say("rule %q denies no longer", before.Denied(), after.Denied())
	return all
}

// Blocked lists what was denied, each once, the first first.
func (p *Proxy) Blocked() []audit.Blocked { return p.log.denials() }

// Close ends listeners and connections. What they were about is in the log when it
// returns.
func (p *Proxy) Close() error {
	p.cancel()
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	for c := range held {
		c.Close()
	}
	err := p.closeWeb()
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
