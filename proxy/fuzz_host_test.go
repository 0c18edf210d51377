package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"demesne/proxy/policy"
)

// FuzzOneHost gives one text for a host to every door of the proxy: CONNECT, SOCKS5, a request for a URL, a DNS query with
// the connection that follows it, and an upstream proxy. It demands that the name that the rules matched is byte for byte the
// name that is resolved, by Go's own resolver on the wire too, and that only an answer to it is dialled. No other parser of
// names may read the matched name in another way (N2, N3, N12).
func FuzzOneHost(f *testing.F) {
	for _, s := range hostSpellings {
		f.Add(s)
	}
	all := policy.Policy{}.Allow(policy.Everything())
	d := &doors{wire: &questions{}}
	for _, p := range []policy.Policy{all, allow(f, "good.test", "*.zone.test:443", "tcp://raw.test:443", "8.8.8.8:443", "[2001:4860:4860::8888]:443").Deny(mustRule(f, "bad.zone.test"))} {
		d.world = &everywhere{}
		proxy, err := New(Config{Policy: p, V4: netip.MustParsePrefix("198.18.0.0/15"), Resolver: d.world, Dialer: d.world,
			Own: func(netip.AddrPort) (bool, error) { return false, nil }, Limits: Limits{Log: 1 << 50}})
		if err != nil {
			f.Fatal(err)
		}
		d.proxies = append(d.proxies, proxy)
		d.worlds = append(d.worlds, d.world)
	}
	f.Fuzz(d.try)
}

// hostSpellings are spellings that made two programs disagree about a name.
var hostSpellings = []string{
	"good.test", "GOOD.test.", "good.test..", ".good.test", "a.zone.test", "zone.test", "bad.zone.test", "BAD.zone。test", "raw.test",
	"evil.test\x00.zone.test", "evil.test%00.zone.test", "evil.test%2e.zone.test", "evil.test\r\nHost: good.test", "evil.test#.zone.test",
	"evil.test?.zone.test", "evil.test/.zone.test", `evil.test\.zone.test`, "evil.test@good.test", "good.test:443@evil.test", "evil.test .zone.test",
	"evil.test\u200b.zone.test", "evil.test\u00ad.zone.test", "ｅｖｉｌ．ｚｏｎｅ．test", "evil｡zone.test", "xn--bcher-kva.zone.test", "bücher.zone.test",
	"xn--zone.test", "xn--.zone.test", "ⓏⓄⓃⒺ.test", "K.zone.test", "faß.zone.test", "ı.zone.test", "_a.zone.test", "-a.zone.test", "a--b.zone.test",
	"127.0.0.1", "127.1", "0x7f.1", "0X7F000001", "2130706433", "017700000001", "0177.0.0.01", "127.0.0.1.", "１２７.0.0.1", "127。0。0。1", "①②⑦.1", "1.2.3.4.5",
	"8.8.8.8", "08.8.8.8", "8.8.2056", "[8.8.8.8]", "[::1]", "::1", "[::ffff:8.8.8.8]", "::ffff:127.0.0.1", "2001:4860:4860::8888", "[2001:4860:4860::8888]",
	"[fe80::1%25eth0]", "fe80::1%eth0", "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "0", "0x", "a.0x1f", "localhost", "good.test:443", "[good.test]", "*.zone.test", "*",
	strings.Repeat("a", 63) + ".zone.test", strings.Repeat("a.", 120) + "zone.test", strings.Repeat("é", 30) + ".zone.test", "good.test\xff", "\xc0\xae.test",
}

func mustRule(t testing.TB, words string) policy.Rule {
	t.Helper()
	r, err := policy.ParseRule(words)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answered is the address that everywhere gives to each name.
var answered = netip.MustParseAddr("8.0.0.1")

// everywhere resolves every name, and connects to every address. It records both.
type everywhere struct{ asked, dialled []string }

func (w *everywhere) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.asked = append(w.asked, host)
	return []netip.Addr{answered}, nil
}

func (w *everywhere) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	w.dialled = append(w.dialled, address)
	return &deaf{}, nil
}

// deaf is a connection that records what is written, and has nothing to read.
type deaf struct {
	net.Conn
	said bytes.Buffer
}

func (c *deaf) Write(b []byte) (int, error)      { return c.said.Write(b) }
func (c *deaf) Read([]byte) (int, error)         { return 0, io.EOF }
func (c *deaf) Close() error                     { return nil }
func (c *deaf) SetDeadline(time.Time) error      { return nil }
func (c *deaf) SetReadDeadline(time.Time) error  { return nil }
func (c *deaf) SetWriteDeadline(time.Time) error { return nil }
func (c *deaf) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(answered, 443))
}

// doors are the ways into two proxies: one that allows everything, so that each spelling gets as far as it can, and one with
// rules.
type doors struct {
	proxies []*Proxy
	worlds  []*everywhere
	world   *everywhere // of the proxy that is tried
	wire    *questions
}

func (d *doors) try(t *testing.T, host string) {
	for i, p := range d.proxies {
		d.world = d.worlds[i]
		for door, flows := range map[string][]*flow{
			"connect": {p.askCONNECT(host + ":443"), p.askCONNECT("[" + host + "]:443")},
			"socks":   d.socks(p, host), "url": d.url(p, host), "dns": d.dns(t, p, host),
		} {
			for _, f := range flows {
				d.check(t, door, host, f, i > 0)
				f.dismiss()
				p.flows.Add(-1)
			}
		}
	}
	if r, err := policy.ParseRule(host); err == nil {
		if name, ok := r.Name(); ok {
			same(t, "rule", host, name.String())
		}
	}
}

func (d *doors) socks(p *Proxy, host string) []*flow {
	if len(host) > 255 {
		return nil
	}
	in := append([]byte{5, 1, socksNoAuth, 5, socksConnect, 0, socksName, byte(len(host))}, host...)
	r, err := readSOCKS(struct {
		io.Reader
		io.Writer
	}{bytes.NewReader(append(in, 443>>8, 443&255)), io.Discard})
	if err != nil {
		return nil
	}
	return []*flow{p.askSOCKS(r)}
}

// url does not try characters that end the host of a URL: the rest is then another part of it.
func (d *doors) url(p *Proxy, host string) []*flow {
	if strings.ContainsAny(host, "/?#") {
		return nil
	}
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET http://" + host + ":443/ HTTP/1.1\r\nHost: good.test\r\n\r\n")))
	if err != nil || oddTarget(r) != "" {
		return nil
	}
	q, err := absoluteTarget(r.URL)
	if err != nil {
		return nil
	}
	return []*flow{p.ask("http", q)}
}

// dns asks for a name whose labels have exactly the bytes of host, and returns the flow of a connection to the answer.
func (d *doors) dns(t *testing.T, p *Proxy, host string) []*flow {
	packet := []byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(host, ".") {
		if len(label) == 0 || len(label) > 63 {
			return nil
		}
		packet = append(append(packet, byte(len(label))), label...)
	}
	m := new(dns.Msg)
	if m.Unpack(append(packet, 0, 0, 1, 0, 1)) != nil || len(m.Question) != 1 {
		return nil
	}
	if len(p.names.list) == p.names.max { // a proxy ends before it has as many names as a fuzzer gives it
		p.names = newNames(p.V4, p.V6, p.Limits.Names, p.Generation)
	}
	asked := m.Question[0].Name
	a := (&resolver{p: p}).answer(m)
	d.world.asked = nil // a wildcard's name is looked up before it is answered
	if len(a.Answer) != 1 {
		return nil
	}
	at, _ := netip.AddrFromSlice(a.Answer[0].(*dns.A).A)
	f := p.askNamed(netip.AddrPortFrom(at, 443))
	if want, err := policy.ParseName(asked); err != nil || f.q.Name != want {
		t.Fatalf("dns %q: the answer to %q stands for %q", host, asked, f.q.Name)
	}
	return []*flow{f}
}

// check dials an allowed flow as far as the connection, and compares what everyone concerned has read.
func (d *doors) check(t *testing.T, door, host string, f *flow, ruled bool) {
	t.Helper()
	if !f.d.Allowed {
		return
	}
	name := f.q.Name.String()
	d.world.asked, d.world.dialled = nil, nil
	c, at, err := f.p.dial(t.Context(), f.d, f.q)
	if f.q.Addr.IsValid() {
		d.address(t, door, host, f, err)
		return
	}
	same(t, door, host, name)
	resolved := name
	if strings.Contains(name, ".") {
		resolved += "."
	}
	if err != nil || c == nil || len(d.world.asked) != 1 || d.world.asked[0] != resolved ||
		len(d.world.dialled) != 1 || d.world.dialled[0] != answered.String()+":443" || at != answered.String()+":443" {
		t.Fatalf("%s %q: matched %q, resolved %q, dialled %q: %v", door, host, name, d.world.asked, d.world.dialled, err)
	}
	if ruled && !matched(name) {
		t.Fatalf("%s %q: %q is allowed by %s", door, host, name, f.d.Reason)
	}
	if strings.Contains(name, ".") && d.wire.of(resolved) != name {
		t.Fatalf("%s %q: Go's resolver asks for %q, not %q", door, host, d.wire.of(resolved), name)
	}
	d.upstream(t, door, host, f)
}

// address checks a flow to a literal address.
func (d *doors) address(t *testing.T, door, host string, f *flow, err error) {
	t.Helper()
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	read, parsed := netip.ParseAddr(bare)
	if parsed != nil || read.Unmap() != f.q.Addr || read.Zone() != "" || len(d.world.asked) != 0 {
		t.Fatalf("%s %q: address %v, resolved %q", door, host, f.q.Addr, d.world.asked)
	}
	if want := netip.AddrPortFrom(f.q.Addr, 443).String(); err != nil && len(d.world.dialled) > 0 ||
		err == nil && (len(d.world.dialled) != 1 || d.world.dialled[0] != want) {
		t.Fatalf("%s %q: address %v, dialled %q: %v", door, host, f.q.Addr, d.world.dialled, err)
	}
}

// upstream checks the request to an upstream proxy, which resolves the name itself.
func (d *doors) upstream(t *testing.T, door, host string, f *flow) {
	t.Helper()
	c := &deaf{}
	(&hop{&url.URL{Scheme: "http", Host: "proxy.test:3128"}}).tunnel(c, net.JoinHostPort(f.q.Host(), "443"))
	r, err := http.ReadRequest(bufio.NewReader(&c.said))
	if want := f.q.Name.String() + ":443"; err != nil || r.RequestURI != want || r.Host != want {
		t.Fatalf("%s %q: matched %q, and the upstream proxy is asked for %+v: %v", door, host, f.q.Name, r, err)
	}
}

// matched is the verdict of the rules by a second, plain implementation.
func matched(name string) bool {
	if name == "bad.zone.test" {
		return false
	}
	return name == "good.test" || name == "raw.test" || strings.HasSuffix(name, ".zone.test") && name != ".zone.test"
}

// same demands that parsers of names and addresses all read name as exactly this name.
func same(t *testing.T, door, host, name string) {
	t.Helper()
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || len(name) > 253 {
		t.Fatalf("%s %q: the name %q", door, host, name)
	}
	if _, err := netip.ParseAddr(name); err == nil || net.ParseIP(name) != nil || inetAton(name) {
		t.Fatalf("%s %q: %q is an address for another parser", door, host, name)
	}
	u, err := url.Parse("https://" + name + ":443/")
	if err != nil || u.Hostname() != name || u.Port() != "443" {
		t.Fatalf("%s %q: %q in a URL is %+v, %v", door, host, name, u, err)
	}
	var wire [256]byte
	if n, err := dns.PackDomainName(name+".", wire[:], 0, nil, false); err != nil {
		t.Fatalf("%s %q: %q on the wire: %v", door, host, name, err)
	} else if back, _, err := dns.UnpackDomainName(wire[:n], 0); err != nil || back != name+"." {
		t.Fatalf("%s %q: %q on the wire is %q, %v", door, host, name, back, err)
	}
	if again, err := policy.ParseName(name); err != nil || again.String() != name {
		t.Fatalf("%s %q: %q is %q when it is read again: %v", door, host, name, again, err)
	}
}

// inetAton reports whether inet_aton(3) takes s for an address: one to four numbers, decimal, octal or hexadecimal, of which
// the last fills the bytes that are left. A trailing dot and WHATWG's shorter forms are included.
func inetAton(s string) bool {
	parts := strings.Split(strings.TrimSuffix(s, "."), ".")
	if len(parts) > 4 {
		return false
	}
	for i, p := range parts {
		base := 10
		switch {
		case len(p) > 1 && (p[:2] == "0x" || p[:2] == "0X"):
			p, base = p[2:]+strings.Repeat("0", max(0, 3-len(p))), 16
		case len(p) > 1 && p[0] == '0':
			base = 8
		}
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		if _, err := strconv.ParseUint(p, base, bits); err != nil {
			return false
		}
	}
	return true
}

// questions asks Go's own resolver, once for doors that give the same name, and records what it puts on the wire.
type questions struct {
	last string
	mu   sync.Mutex
	seen string
}

func (q *questions) of(name string) string {
	if q.last == name {
		return strings.TrimSuffix(q.seen, ".")
	}
	q.last = name
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return &server{q: q}, nil }}
	q.seen = ""
	r.LookupNetIP(context.Background(), "ip4", name)
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.TrimSuffix(q.seen, ".")
}

// server is a connection over TCP to a DNS server that resolves no name.
type server struct {
	deaf
	q     *questions
	reply bytes.Buffer
}

func (s *server) Write(b []byte) (int, error) {
	m := new(dns.Msg)
	if err := m.Unpack(b[2:]); err != nil || len(m.Question) != 1 {
		return 0, io.ErrClosedPipe
	}
	s.q.mu.Lock()
	s.q.seen = m.Question[0].Name
	s.q.mu.Unlock()
	a := new(dns.Msg)
	a.SetRcode(m, dns.RcodeNameError)
	raw, err := a.Pack()
	binary.Write(&s.reply, binary.BigEndian, uint16(len(raw)))
	s.reply.Write(raw)
	return len(b), err
}

func (s *server) Read(b []byte) (int, error) { return s.reply.Read(b) }
