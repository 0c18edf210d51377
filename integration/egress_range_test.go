package integration

import (
	"strings"
	"testing"
)

// TestEscapeN44Range checks that a rule for a range of addresses allows these addresses on its ports: no name, no other
// address, and never a metadata service that is in the range.
func TestEscapeN44Range(t *testing.T) {
	onLevels(t, func(n *internet) {
		program(n, "curl")
		for _, way := range []string{"", "--noproxy '*'"} {
			curl := func(url string, rules ...string) result {
				var flags []string
				for _, rule := range rules {
					flags = append(flags, "--allow-domain", rule)
				}
				return n.inside("curl -sS -m 20 "+way+" "+url+"; true", flags...)
			}
			if r := curl("http://good.test/", "good.test", "8.1.0.0/16:80"); r.stdout != "hello from good.test\n" {
				t.Errorf("%q: a name in the range: %+v", way, r)
			}
			n.seen = nil
			for _, c := range []struct {
				url   string
				rules []string
			}{
				{"http://dark.test/", []string{"8.1.0.0/16:80"}}, // a range allows no name
				{"http://good.test/", []string{"8.1.0.0/16:80"}},
				{"http://good.test/", []string{"good.test:443", "8.0.0.0/8:443"}}, // another port
				{"http://meta.test/", []string{"meta.test:80", "169.254.0.0/16:80"}},
				{"http://meta.test/", []string{"meta.test:80", "128.0.0.0/1:80"}},
				{"http://inner.test:5432/", []string{"inner.test:5432", "126.0.0.0/8:*"}},
			} {
				if r := curl(c.url, c.rules...); strings.Contains(r.stdout, "hello") || !strings.Contains(r.stderr, "blocked: ") || len(n.seen) > 0 {
					t.Errorf("%q: %s by %q: %+v; seen %q", way, c.url, c.rules, r, n.seen)
				}
			}
		}
		for _, c := range []struct {
			url, rule string
			blocked   bool
		}{
			{"http://8.1.1.1/", "8.1.0.0/16:80", false},
			{"http://8.2.2.2/", "8.1.0.0/16:80", true},
			{"http://8.1.1.1:8080/", "8.1.0.0/16:80", true},
			{"http://169.254.169.254/", "169.254.0.0/16:80", true},
			{"-m 3 http://169.254.169.254/", "169.254.169.254/32:80", false}, // nothing answers there
			{"http://[::ffff:169.254.169.254]/", "169.254.0.0/16:80", true},
		} {
			r := n.inside("curl -sS -g "+c.url+"; true", "--allow-domain", c.rule)
			if strings.Contains(r.stderr, "blocked: ") != c.blocked {
				t.Errorf("%s by %q: %+v", c.url, c.rule, r)
			}
		}
		for _, rule := range []string{"10.0.0.1/8:443", "10.0.0.0/33", "::ffff:10.0.0.0/104"} {
			if r := n.demesne("run", "--allow-domain", rule, "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "malformed rule") && !strings.Contains(r.stderr, "not a host name") {
				t.Errorf("%q: %+v", rule, r)
			}
		}
	})
}
