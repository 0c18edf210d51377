package policy

import (
	"net/netip"
	"testing"
)

// TestAddressRules checks every way to write addresses with and without ports.
func TestAddressRules(t *testing.T) {
	in, out := netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db9::7")
	for text, ports := range map[string][2]uint16{ // a port that is covered, and one that is not
		"2001:db8::/32": {443, 22}, "2001:db8::/32:22": {22, 443}, "[2001:db8::]/32:22": {22, 443}, "[2001:db8::/32]:22": {22, 443},
		"[2001:db8::]/32": {443, 22}, "2001:db8::/32:22,8000-8010": {8005, 443}, "[2001:db8::7]:22": {22, 443}, "tcp://2001:db8::/32:22": {22, 443},
	} {
		r, err := ParseRule(text)
		if err != nil {
			t.Error(err)
			continue
		}
		p := Policy{}.Allow(r)
		for q, want := range map[Query]bool{{Addr: in, Port: ports[0]}: true, {Addr: in, Port: ports[1]}: false, {Addr: out, Port: ports[0]}: false} {
			if d := p.Decide(q); d.Allowed != want {
				t.Errorf("%s: %v port %d: %+v", text, q.Addr, q.Port, d)
			}
		}
		if again, err := ParseRule(r.Words()); err != nil || again.String() != r.String() {
			t.Errorf("%s: words %q: %v", text, r.Words(), err)
		}
	}
	for _, text := range []string{"2001:db8::/32:", "[2001:db8::]:", "[2001:db8::]/32:", "10.0.0.0/8:", "[::1]22", "2001:db8::/129:22", "2001:db8::1/32:22", "x.test:"} {
		if r, err := ParseRule(text); err == nil {
			t.Errorf("%s: parsed as %+v", text, r)
		}
	}
}

// TestRemedy checks that a denial names the rule that would allow it, and that this rule does.
func TestRemedy(t *testing.T) {
	for _, c := range []struct {
		rules, host string
		port        uint16
		want        string
	}{
		{"", "x.test", 443, "x.test"},
		{"", "x.test", 0, "x.test"},
		{"", "x.test", 22, "x.test:22"},
		{"x.test", "x.test", 22, "x.test:22"},
		{"x.test:80", "x.test", 443, "x.test"},
		{"", "192.0.2.7", 8080, "192.0.2.7:8080"},
		{"", "2001:db8::7", 8443, "[2001:db8::7]:8443"},
		{"", "2001:db8::7", 443, "2001:db8::7"},
		{"", "10.0.0.7", 22, "10.0.0.7:22"},
		{"", "169.254.169.254", 80, ""},
		{"x.test methods=GET", "x.test", 443, ""},
	} {
		p := Policy{}
		if c.rules != "" {
			p = p.Allow(must(t, c.rules)...)
		}
		q, err := Ask(c.host, c.port)
		if err != nil {
			t.Fatal(err)
		}
		d := p.Decide(q)
		if d.Allowed || d.Allow != c.want {
			t.Errorf("%s, %s port %d: %+v, want %q", c.rules, c.host, c.port, d, c.want)
		}
		if c.want != "" && c.port != 0 && !p.Allow(must(t, d.Allow)...).Decide(q).Allowed {
			t.Errorf("%s port %d: %q does not allow it", c.host, c.port, d.Allow)
		}
	}
	x := Query{Name: Name{"x.test"}, Port: 8080}
	p := Policy{}.Allow(must(t, "x.test:*")...)
	found := netip.MustParseAddr("10.0.0.7")
	d := p.Dial(p.Decide(x), x, found)
	if d.Allowed || d.Allow != "10.0.0.7:8080" || !p.Allow(must(t, d.Allow)...).Dial(p.Decide(x), x, found).Allowed {
		t.Errorf("a private address: %+v", d)
	}
	if d := p.Deny(must(t, "x.test")...).Decide(x); d.Allow != "" {
		t.Errorf("a rule that denies: %+v", d)
	}
}
