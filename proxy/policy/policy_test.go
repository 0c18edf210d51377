package policy

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func must(t *testing.T, words ...string) []Rule {
	t.Helper()
	var rules []Rule
	for _, w := range words {
		r, err := ParseRule(w)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, r)
	}
	return rules
}

func narrowed(t *testing.T, word, path string, methods ...string) Rule {
	t.Helper()
	r, err := must(t, word)[0].Requests(methods, path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEscapeN4Zero checks that an empty policy allows nothing.
func TestEscapeN4Zero(t *testing.T) {
	for _, p := range []Policy{{}, Policy{}.Allow(), Policy{}.Allow([]Rule{}...), Policy{}.Allow(Rule{}), Policy{}.Deny(must(t, "x.test")...)} {
		for _, host := range []string{"example.com", "1.1.1.1", "::1"} {
			q, err := Ask(host, 443)
			if d := p.Decide(q); err != nil || d.Allowed || d.Reason != "no rule" || !d.Unknown {
				t.Errorf("%s: %+v %v", host, d, err)
			}
			if d := p.Resolves(q.Name); d.Allowed {
				t.Errorf("%s resolves", host)
			}
		}
		if d := p.Decide(Query{}); d.Allowed || d.Reason != "neither a name nor an address" {
			t.Errorf("nothing: %+v", d)
		}
	}
	if d := (Policy{}).Dial(Decision{}, Query{}, netip.MustParseAddr("1.1.1.1")); d.Allowed {
		t.Error("the zero decision became a dial")
	}
}

func TestDecide(t *testing.T) {
	p := Policy{}.
		Allow(must(t, "example.com", "*.wild.test:443", "db.test:5432,6000-6002", "10.1.0.0/16:22", "[fd00::1]:443", "tcp://raw.test:443", "8.8.8.8", "any.test:*", "9.9.9.0/24:*")...).
		Allow(narrowed(t, "api.test", "/v1/*", "GET", "HEAD"), narrowed(t, "api.test", "/v2")).
		Deny(must(t, "bad.wild.test", "example.com:25", "10.1.2.0/24")...)
	for _, c := range []struct {
		host         string
		port         uint16
		method, path string
		want         string // the reason
	}{
		{"example.com", 443, "", "", `allowed by rule "example.com"`},
		{"EXAMPLE.com.", 80, "", "", `allowed by rule "example.com"`},
		{"example.com", 8443, "", "", `rule "example.com" names no port, so it covers 80 and 443, not 8443`},
		{"any.test", 1, "", "", `allowed by rule "any.test:*"`},
		{"9.9.9.9", 53, "", "", `allowed by rule "9.9.9.0/24:*"`},
		{"bad.wild.test", 8443, "", "", `denied by rule "bad.wild.test"`},
		{"10.1.2.4", 8443, "", "", `denied by rule "10.1.2.0/24"`},
		{"example.com", 25, "", "", `denied by rule "example.com:25"`},
		{"www.example.com", 443, "", "", "no rule"},
		{"example.com.evil.test", 443, "", "", "no rule"},
		{"a.wild.test", 443, "", "", `allowed by rule "*.wild.test:443"`},
		{"a.b.wild.test", 443, "", "", `allowed by rule "*.wild.test:443"`},
		{"a.wild.test", 80, "", "", `rule "*.wild.test:443" does not cover port 80`},
		{"wild.test", 443, "", "", "no rule"},
		{"bad.wild.test", 443, "", "", `denied by rule "bad.wild.test"`},
		{"db.test", 5432, "", "", `allowed by rule "db.test:5432,6000-6002"`},
		{"db.test", 6001, "", "", `allowed by rule "db.test:5432,6000-6002"`},
		{"db.test", 6003, "", "", `rule "db.test:5432,6000-6002" does not cover port 6003`},
		{"10.1.3.4", 22, "", "", `allowed by rule "10.1.0.0/16:22"`},
		{"10.1.2.4", 22, "", "", `denied by rule "10.1.2.0/24"`},
		{"10.2.0.1", 22, "", "", "no rule"},
		{"::ffff:10.1.3.4", 22, "", "", `allowed by rule "10.1.0.0/16:22"`},
		{"[fd00::1]", 443, "", "", `allowed by rule "[fd00::1]:443"`},
		{"8.8.8.8", 443, "", "", `allowed by rule "8.8.8.8"`},
		{"8.8.8.8", 53, "", "", `rule "8.8.8.8" names no port, so it covers 80 and 443, not 53`},
		{"api.test", 80, "GET", "/v1/x", `allowed by rule "GET,HEAD api.test/v1/*"`},
		{"api.test", 80, "POST", "/v1/x", `rule "api.test/v2" does not cover POST "/v1/x"`},
		{"api.test", 80, "POST", "/v2", `allowed by rule "api.test/v2"`},
		{"api.test", 80, "GET", "/v1", `rule "api.test/v2" does not cover GET "/v1"`},
		{"api.test", 80, "GET", "/v1/../secret", `rule "api.test/v2" does not cover GET "/v1/../secret"`},
		{"api.test", 80, "GET", "/v1/%2e%2e/secret", `rule "api.test/v2" does not cover GET "/v1/%2e%2e/secret"`},
		{"api.test", 80, "GET", "/v1//x", `rule "api.test/v2" does not cover GET "/v1//x"`},
		{"api.test", 443, "", "", `rule "api.test/v2" needs to see the request, which is encrypted`},
	} {
		q, err := Ask(c.host, c.port)
		if err != nil {
			t.Fatal(err)
		}
		q.Method, q.Path = c.method, c.path
		d := p.Decide(q)
		if d.Reason != c.want || d.Allowed != strings.HasPrefix(c.want, "allowed") || d.Unknown != (c.want == "no rule" || strings.Contains(c.want, "not cover port") || strings.Contains(c.want, "names no port")) {
			t.Errorf("%s:%d %s %s: %+v, want %q", c.host, c.port, c.method, c.path, d, c.want)
		}
		if d.Raw() != (c.host == "raw.test") {
			t.Errorf("%s: raw", c.host)
		}
	}
}

// TestEscapeN11Dial checks that the owner of a name chooses its addresses, but not which of them may be dialled.
func TestEscapeN11Dial(t *testing.T) {
	names := must(t, "example.com")
	inside := append(must(t, "example.com"), must(t, "10.0.0.0/8:443", "169.254.0.0/16", "64:ff9b::/96")...)
	exact := append(must(t, "example.com"), must(t, "169.254.169.254")...)
	private := []Rule{names[0].Private()}
	for _, c := range []struct {
		rules []Rule
		deny  string
		to    string
		want  string
	}{
		{names, "", "93.184.216.34", ""},
		{names, "", "2606:4700::1", ""},
		{names, "", "127.0.0.1", "example.com resolves to 127.0.0.1 (loopback), which no rule lists"},
		{names, "", "::ffff:127.0.0.1", "example.com resolves to 127.0.0.1 (loopback), which no rule lists"},
		{names, "", "169.254.169.254", "example.com resolves to 169.254.169.254 (a cloud's metadata service), which no rule lists"},
		{names, "", "10.0.0.1", "example.com resolves to 10.0.0.1 (private), which no rule lists"},
		{names, "", "64:ff9b::808:808", "example.com resolves to 64:ff9b::808:808 (an IPv4 address inside IPv6), which no rule lists"},
		{names, "93.0.0.0/8", "93.184.216.34", `example.com resolves to 93.184.216.34: denied by rule "93.0.0.0/8"`},
		{names, "93.0.0.0/8:25", "93.184.216.34", ""},
		{inside, "", "10.0.0.1", ""},
		{inside, "", "169.254.1.1", ""},
		{inside, "", "169.254.169.254", "example.com resolves to 169.254.169.254 (a cloud's metadata service), which no rule lists"},
		{inside, "", "64:ff9b::808:808", ""},
		{inside, "", "64:ff9b::7f00:1", "example.com resolves to 127.0.0.1 (loopback), which no rule lists"},
		{inside, "", "64:ff9b::a00:1", ""},
		{exact, "", "169.254.169.254", ""},
		{private, "", "10.0.0.1", ""},
		{private, "", "fd00::1", ""},
		{private, "", "100.64.0.1", ""},
		{private, "", "127.0.0.1", "example.com resolves to 127.0.0.1 (loopback), which no rule lists"},
		{private, "", "fd00:ec2::254", "example.com resolves to fd00:ec2::254 (a cloud's metadata service), which no rule lists"},
		{private, "", "198.18.0.1", "example.com resolves to 198.18.0.1 (benchmarking), which no rule lists"},
	} {
		p := Policy{}.Allow(c.rules...)
		if c.deny != "" {
			p = p.Deny(must(t, c.deny)...)
		}
		q, _ := Ask("example.com", 443)
		d := p.Dial(p.Decide(q), q, netip.MustParseAddr(c.to))
		if d.Allowed != (c.want == "") || (!d.Allowed && d.Reason != c.want) {
			t.Errorf("%v to %s: %+v, want %q", c.rules, c.to, d, c.want)
		}
	}
}

func TestEverything(t *testing.T) {
	p := Policy{}.Allow(Everything()).Deny(must(t, "*.evil.test")...)
	for host, want := range map[string]bool{
		"example.com": true, "evil.test": true, "a.evil.test": false, "1.1.1.1": true, "127.0.0.1": false, "169.254.169.254": false, "10.0.0.1": false, "::1": false,
	} {
		q, _ := Ask(host, 443)
		if d := p.Decide(q); d.Allowed != want {
			t.Errorf("%s: %+v", host, d)
		}
		if q.Addr.IsValid() {
			continue
		}
		if d := p.Resolves(q.Name); d.Allowed != want {
			t.Errorf("resolve %s: %+v", host, d)
		}
	}
}

func TestResolves(t *testing.T) {
	p := Policy{}.Allow(must(t, "a.test:22", "*.b.test", "c.test")...).Deny(must(t, "c.test:25", "x.b.test")...)
	for host, want := range map[string]string{
		"a.test": `allowed by rule "a.test:22"`, "y.b.test": `allowed by rule "*.b.test"`, "x.b.test": `denied by rule "x.b.test"`,
		"c.test": `allowed by rule "c.test"`, "d.test": "no rule",
	} {
		n, _ := ParseName(host)
		if d := p.Resolves(n); d.Reason != want {
			t.Errorf("%s: %+v", host, d)
		}
	}
}

func TestImmutable(t *testing.T) {
	base := Policy{}.Allow(must(t, "a.test")...)
	one, two := base.Allow(must(t, "b.test")...), base.Allow(must(t, "c.test")...)
	if len(base.Allowed()) != 1 || one.Allowed()[1].String() != "b.test" || two.Allowed()[1].String() != "c.test" {
		t.Errorf("%v %v %v", base, one, two)
	}
	one.Allowed()[0] = Everything()
	if one.Allowed()[0].String() != "a.test" || len(one.Denied()) != 0 {
		t.Error("the caller's copy is the policy's")
	}
}

func TestParseRuleRefused(t *testing.T) {
	for in, want := range map[string]string{
		"":                    `parse rule "": parse name "": not a host name: empty`,
		"*":                   `parse rule "*": malformed rule: '*' replaces whole leading labels, as in *.example.com`,
		"*.com":               `parse rule "*.com": malformed rule: "com" is a public suffix: anyone can register a name below it`,
		"*.co.uk:443":         `parse rule "*.co.uk:443": malformed rule: "co.uk" is a public suffix: anyone can register a name below it`,
		"*.github.io":         `parse rule "*.github.io": malformed rule: "github.io" is a public suffix: anyone can register a name below it`,
		"a*.example.com":      `parse rule "a*.example.com": malformed rule: '*' replaces whole leading labels, as in *.example.com`,
		"*.*.example.com":     `parse rule "*.*.example.com": parse name "*.example.com": not a host name: contains '*'`,
		"example.com:":        `parse rule "example.com:": malformed rule: no port after ':'`,
		"example.com:0":       `parse rule "example.com:0": malformed rule: port "0" is not in 1-65535`,
		"example.com:65536":   `parse rule "example.com:65536": malformed rule: port "65536" is not in 1-65535`,
		"example.com:80-":     `parse rule "example.com:80-": malformed rule: port "80-" is not in 1-65535`,
		"example.com:90-80":   `parse rule "example.com:90-80": malformed rule: port range "90-80" is reversed`,
		"example.com:+80":     `parse rule "example.com:+80": malformed rule: port "+80" is not in 1-65535`,
		"10.0.0.1/8":          `parse rule "10.0.0.1/8": malformed rule: 10.0.0.1/8 has bits set after its prefix: write 10.0.0.0/8`,
		"::ffff:10.0.0.0/104": `parse rule "::ffff:10.0.0.0/104": malformed rule: write the address in IPv4 notation`,
		"[::1":                `parse rule "[::1": malformed rule: expected ']' and at most /BITS after it`,
		"https://example.com": `parse rule "https://example.com": malformed rule: port "//example.com" is not in 1-65535`,
		"example.com/path":    `parse rule "example.com/path": parse name "example.com/path": not a host name: contains '/'`,
		"0x7f.1":              `parse rule "0x7f.1": parse name "0x7f.1": not a host name: an IP address in a notation that is not accepted`,
	} {
		if r, err := ParseRule(in); err == nil || err.Error() != want {
			t.Errorf("ParseRule(%q) = %v, %v; want %s", in, r, err, want)
		}
	}
	for _, ok := range []string{"*.corp", "*.example.com", "localhost:1", "::1", "fd00::/8", "[fd00::/8]:1-65535", "1.2.3.4", "tcp://x.test:*"} {
		if _, err := ParseRule(ok); err != nil {
			t.Error(err)
		}
	}
}

func TestRequestsRefused(t *testing.T) {
	r := must(t, "a.test")[0]
	for _, c := range []struct{ method, path string }{{"get", ""}, {"", "x"}, {"GET /", ""}, {"GET", "v1"}, {"GET", "/a/../b"}, {"GET", "/a*"}, {"GET", "/a//b/*"}} {
		if got, err := r.Requests([]string{c.method}, c.path); !errors.Is(err, errRule) {
			t.Errorf("%v: %v %v", c, got, err)
		}
	}
	if got, err := r.Requests(nil, "/*"); err != nil || !got.coversRequest(Query{Path: "/x/../y"}) {
		t.Error("everything below the root is not everything")
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"example.com:443", "*.example.com", "10.0.0.0/8:22", "[fd00::/8]:1-2", "tcp://a.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRule(s)
		if err != nil {
			return
		}
		if again, err := ParseRule(r.String()); err != nil || again.name != r.name || again.zone != r.zone || again.prefix != r.prefix {
			t.Fatalf("%q is %+v, then %+v: %v", s, r, again, err)
		}
	})
}

// TestSeveralRules checks that of several matching allow rules the decision names the first. The decision is raw
// or private if any of them is.
func TestSeveralRules(t *testing.T) {
	p := Policy{}.Allow(must(t, "a.test:*", "tcp://a.test:443", "a.test:22")...).Allow(must(t, "a.test:443")[0].Private())
	for port, want := range map[uint16][2]bool{443: {true, true}, 80: {false, false}, 22: {false, false}} {
		q, _ := Ask("a.test", port)
		d := p.Decide(q)
		inside := p.Dial(d, q, netip.MustParseAddr("10.0.0.1"))
		if d.Raw() != want[0] || inside.Allowed != want[1] || d.Rule.String() != "a.test:*" {
			t.Errorf("port %d: %+v, inside %+v", port, d, inside)
		}
	}
}

// TestLater checks that a connection whose requests can be read is decided by its host. Each request is then
// decided on its own.
func TestLater(t *testing.T) {
	p := Policy{}.Allow(narrowed(t, "a.test", "/v1/*", "GET")).Deny(narrowed(t, "a.test", "/v1/secret"))
	q, _ := Ask("a.test", 80)
	for _, c := range []struct {
		later        bool
		method, path string
		want         bool
	}{
		{false, "", "", false}, {true, "", "", true}, {false, "GET", "/v1/x", true}, {false, "GET", "/v1/secret", false}, {false, "POST", "/v1/x", false},
	} {
		q.Later, q.Method, q.Path = c.later, c.method, c.path
		if d := p.Decide(q); d.Allowed != c.want {
			t.Errorf("%+v: %+v", c, d)
		}
	}
	if r, err := must(t, "tcp://a.test")[0].Requests([]string{"GET"}, ""); err == nil {
		t.Errorf("%v was narrowed", r)
	}
}

func TestPorts(t *testing.T) {
	p := Policy{}.Allow(must(t, "a.test:*", "b.test:443,5432", "c.test:65000-65535", "d.test:65535")...).Deny(must(t, "e.test:9")...)
	got := p.Ports()
	if n := len(usual); len(got) != n+64+1 || !slices.Equal(got[:n], usual) || got[n] != 65000 || got[n+64] != 65535 || len(Policy{}.Ports()) != 0 {
		t.Error(got)
	}
	if got := (Policy{}).Allow(must(t, "a.test", "tcp://b.test", "10.0.0.0/8")...).Ports(); !slices.Equal(got, []uint16{80, 443}) {
		t.Error(got)
	}
	if got := (Policy{}).Allow(Everything()).Ports(); !slices.Equal(got, usual) {
		t.Error(got)
	}
}

// TestMember checks that deny rules apply to members of a group, and that a rule names a host.
func TestMember(t *testing.T) {
	p := Policy{}.Allow(must(t, "host:443", "*.zone.test", "10.0.0.0/8")...).
		Deny(must(t, "shut", "db:22", "10.0.0.0/8")...).Deny(narrowed(t, "web", "/admin/*"))
	for _, c := range []struct {
		name, method, path string
		port               uint16
		ok, allowed        bool
	}{
		{"db", "", "", 0, true, true},
		{"db", "", "", 5432, true, true},
		{"db", "", "", 22, true, false},
		{"shut", "", "", 0, true, false},
		{"shut", "", "", 80, true, false},
		{"web", "", "", 0, true, true},
		{"web", "", "", 80, true, false}, // its requests cannot be read
		{"web", "GET", "/", 80, true, true},
		{"web", "GET", "/admin/x", 80, true, false},
		{"host", "", "", 443, false, false},
		{"host", "", "", 22, false, false},
	} {
		name, err := ParseName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		d, ok := p.Member(Query{Name: name, Port: c.port, Method: c.method, Path: c.path}, "shop")
		if ok != c.ok || d.Allowed != c.allowed || (d.Group == "shop") != c.allowed || d.Raw() != c.allowed {
			t.Errorf("%+v: %+v, %t", c, d, ok)
		}
	}
}
