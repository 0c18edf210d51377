package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"demesne/proxy/policy"
)

// query asks for a name in the wire format.
func (r *rig) query(name string, kind uint16) *dns.Msg {
	r.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	packed, err := m.Pack()
	if err != nil {
		r.t.Fatal(err)
	}
	got := new(dns.Msg)
	if err := got.Unpack(packed); err != nil {
		r.t.Fatal(err)
	}
	return (&resolver{p: r.proxy}).answer(got)
}

func TestDNS(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test", "*.wild.test")}, "a.wild.test")
	for _, c := range []struct {
		name, answer string
		kind         uint16
		rcode        int
	}{
		{"good.test.", "198.19.0.1", dns.TypeA, dns.RcodeSuccess},
		{"GOOD.test.", "198.19.0.1", dns.TypeA, dns.RcodeSuccess},
		{"good.test.", "fd64:6d65:736e:1::1", dns.TypeAAAA, dns.RcodeSuccess},
		{"a.wild.test.", "198.19.0.2", dns.TypeA, dns.RcodeSuccess},
		{"b.wild.test.", "", dns.TypeA, dns.RcodeNameError},
		{"wild.test.", "", dns.TypeA, dns.RcodeNameError},
		{"bad.test.", "", dns.TypeA, dns.RcodeNameError},
		{".", "", dns.TypeNS, dns.RcodeNameError},
		{"good.test.", "", dns.TypeTXT, dns.RcodeSuccess},
		{"good.test.", "", dns.TypeHTTPS, dns.RcodeSuccess},
		{"good.test.", "", dns.TypeSVCB, dns.RcodeSuccess},
		{"good.test.", "", dns.TypeNULL, dns.RcodeSuccess},
		{"good.test.", "", dns.TypeANY, dns.RcodeSuccess},
	} {
		a := r.query(c.name, c.kind)
		got := ""
		for _, rr := range a.Answer {
			switch rr := rr.(type) {
			case *dns.A:
				got += rr.A.String()
			case *dns.AAAA:
				got += rr.AAAA.String()
			}
		}
		if a.Rcode != c.rcode || got != c.answer || !a.RecursionAvailable || !a.Response || a.Question[0].Name != c.name {
			t.Errorf("%s %d: %v", c.name, c.kind, a)
		}
		if _, err := a.Pack(); err != nil {
			t.Error(err)
		}
	}
}

func TestDNSOdd(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test")})
	for name, change := range map[string]func(*dns.Msg){
		"two questions": func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"none":          func(m *dns.Msg) { m.Question = nil },
		"chaos":         func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"update":        func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		"edns 1":        func(m *dns.Msg) { m.SetEdns0(4096, false); m.IsEdns0().SetVersion(1) },
	} {
		m := new(dns.Msg)
		m.SetQuestion("good.test.", dns.TypeA)
		change(m)
		if a := (&resolver{p: r.proxy}).answer(m); a.Rcode == dns.RcodeSuccess || len(a.Answer) != 0 {
			t.Errorf("%s: %v", name, a)
		}
	}
}

// TestDNSServed checks DNS over UDP and TCP, through the kernel.
func TestDNSServed(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test")})
	pc, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.proxy.ServeDNS(pc) }()
	r.serve("127.0.0.1:53", r.proxy.ServeDNSTCP)
	for _, network := range []string{"udp", "tcp"} {
		c := dns.Client{Net: network}
		m := new(dns.Msg)
		m.SetQuestion("good.test.", dns.TypeA)
		a, _, err := c.Exchange(m, "127.0.0.1:53")
		if err != nil || len(a.Answer) != 1 {
			t.Errorf("%s: %v %v", network, a, err)
		}
	}
	r.idle()
	r.proxy.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("198.19.0.0/29"), netip.MustParsePrefix("fd00::/112")
	s := newNames(v4, v6, 100, 0)
	for i := range 6 {
		n, _ := policy.ParseName(fmt.Sprintf("n%d.test", i))
		for _, pool := range []netip.Prefix{v4, v6, v4} {
			a, err := s.address(n, pool)
			if err != nil || !pool.Contains(a) {
				t.Fatal(a, err)
			}
			if got, ok := s.name(a); !ok || got != n {
				t.Errorf("%v is %v, not %v", a, got, n)
			}
		}
	}
	n, _ := policy.ParseName("more.test")
	if a, err := s.address(n, v4); !errors.Is(err, errNames) {
		t.Error(a, err)
	}
	for _, a := range []string{"198.19.0.0", "198.19.0.7", "198.19.0.8", "8.8.8.8", "fd00::", "fd00::1:0:1", "fd01::1", "fd00::7"} {
		if n, ok := s.name(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %v", a, n)
		}
	}
	if _, ok := newNames(netip.Prefix{}, netip.Prefix{}, 5, 0).name(netip.MustParseAddr("1.1.1.1")); ok {
		t.Error("no pool has a name")
	}
}

// FuzzDNS checks that every answer can be sent, and has an address only for an allowed name.
func FuzzDNS(f *testing.F) {
	m := new(dns.Msg)
	m.SetQuestion("good.test.", dns.TypeA)
	b, _ := m.Pack()
	f.Add(b)
	p, err := New(Config{Policy: allow(f, "good.test"), V4: netip.MustParsePrefix("198.19.0.0/16")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil {
			return
		}
		a := (&resolver{p: p}).answer(m)
		if _, err := a.Pack(); err != nil && len(m.Question) == 1 {
			t.Fatalf("%v: %v", a, err)
		}
		for _, rr := range a.Answer {
			if n, err := policy.ParseName(rr.Header().Name); err != nil || n.String() != "good.test" {
				t.Fatalf("an answer for %q", rr.Header().Name)
			}
		}
	})
}

// TestNamesOfGenerations checks that a proxy which replaces another assigns other addresses to names.
func TestNamesOfGenerations(t *testing.T) {
	v4 := netip.MustParsePrefix("198.19.0.0/24")
	n, _ := policy.ParseName("n.test")
	seen := map[netip.Addr]int{}
	for generation := range 5 {
		s := newNames(v4, netip.Prefix{}, 60, generation)
		a, err := s.address(n, v4)
		if got, ok := s.name(a); err != nil || !ok || got != n || !v4.Contains(a) {
			t.Errorf("generation %d: %v is %v, %v", generation, a, got, err)
		}
		for other, g := range seen {
			if _, ok := s.name(other); ok && other != a {
				t.Errorf("generation %d knows %v, which generation %d gave", generation, other, g)
			}
		}
		seen[a] = generation
	}
	if len(seen) != 4 {
		t.Errorf("%d addresses for 254 in fours of 60", len(seen))
	}
}

// TestEscapeN16Names checks that the number of names under a wildcard is bounded. The names that have an address
// are still answered.
func TestEscapeN16Names(t *testing.T) {
	up, err := UpstreamFrom(func(name string) string { return map[string]string{"HTTP_PROXY": "http://127.0.0.1:1"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Policy: allow(t, "*.wild.test"), Upstream: up})
	for i := range 17000 {
		a := r.query(fmt.Sprintf("n%d.wild.test.", i), dns.TypeA)
		if got, want := a.Rcode == dns.RcodeSuccess, i < 16384; got != want {
			t.Fatalf("name %d: %v", i, a)
		}
	}
	if a := r.query("n7.wild.test.", dns.TypeA); len(a.Answer) != 1 {
		t.Errorf("a name it has: %v", a)
	}
	if n := len(r.proxy.names.list); n != 16384 {
		t.Errorf("%d names are kept", n)
	}
}

// gate is a resolver that blocks until it is open.
type gate struct{ asked, open chan struct{} }

func (g gate) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	g.asked <- struct{}{}
	<-g.open
	return []netip.Addr{netip.MustParseAddr("8.0.0.2")}, nil
}

// answers counts the messages written to a client.
type answers struct {
	dns.ResponseWriter
	mu sync.Mutex
	n  int
}

func (a *answers) WriteMsg(*dns.Msg) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	return nil
}

// TestQueriesBounded checks that at most maxQueries queries wait for a resolver that does not answer.
func TestQueriesBounded(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "named.test", "*.wild.test")})
	g := gate{make(chan struct{}), make(chan struct{})}
	r.proxy.Resolver = g
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	s := &dns.Server{PacketConn: c}
	r.proxy.serveDNS(c, s) // returns as c is closed; it has set s.Handler
	ask := func(name string) *answers {
		a := &answers{}
		s.Handler.ServeDNS(a, new(dns.Msg).SetQuestion(name, dns.TypeA))
		return a
	}
	if a := ask("named.test."); a.n != 1 {
		t.Fatalf("%d answers without the resolver", a.n)
	}
	var waiting sync.WaitGroup
	for i := range maxQueries {
		waiting.Go(func() {
			if a := ask(fmt.Sprintf("%d.wild.test.", i)); a.n != 1 {
				t.Errorf("%d answers once the resolver spoke", a.n)
			}
		})
	}
	for range maxQueries {
		<-g.asked
	}
	if a := ask("named.test."); a.n != 0 {
		t.Error("one more was taken")
	}
	close(g.open)
	waiting.Wait()
}

// TestQuerySockets checks that the sockets for queries of a sandbox are among the connections that are bounded, and that one
// makes room when it is closed.
func TestQuerySockets(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "good.test"), Limits: Limits{Connections: 1}}, "good.test")
	query, err := new(dns.Msg).SetQuestion("good.test.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	open := func() (theirs net.Conn, ended chan struct{}) {
		ours, theirs := net.Pipe()
		ended = make(chan struct{})
		go func() { defer close(ended); r.proxy.ServeQueries(ours) }()
		t.Cleanup(func() { theirs.Close() })
		return theirs, ended
	}
	answered := func(c net.Conn) error {
		if _, err := c.Write(query); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, dns.MaxMsgSize))
		return err
	}
	first, ended := open()
	if err := answered(first); err != nil {
		t.Fatal(err)
	}
	if second, _ := open(); answered(second) == nil {
		t.Error("a second socket is served")
	}
	first.Close()
	<-ended
	if third, _ := open(); answered(third) != nil {
		t.Error("the closed socket made no room")
	}
}
