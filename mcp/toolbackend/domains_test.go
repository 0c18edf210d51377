package toolbackend

import (
	"strings"
	"testing"

	"demesne/mcp"
	"demesne/proxy/policy"
)

// TestEscapeM1Decide checks that exactly the rules that an operator listed are allowed. For other rules the
// user is asked only about public Internet names.
func TestEscapeM1Decide(t *testing.T) {
	const list = `api.test, *.corp.test:443,8443 db.inner.test:5432 private
		10.1.0.0/16:5432  read.test:443 methods=GET,HEAD path=/v1/* printer.local:80 [fd00::1]:443 tcp://git.test:22 front.test ech`
	d, err := parseDomains(list)
	if err != nil || len(d.listed) != 9 {
		t.Fatalf("%v %v", d, err)
	}
	npm := policy.Ecosystems()[0].Hosts()[0]
	for _, c := range []struct {
		words, use string
		verdict    mcp.Verdict
	}{
		{"api.test:443", "api.test:443", mcp.Listed},
		{"API.test:443", "API.test:443", mcp.Listed},
		{"api.test:22", "api.test:22", mcp.Ask},
		{"api.test:*", "api.test:*", mcp.Ask},
		{"x.api.test", "x.api.test", mcp.Ask},
		{"*.api.test", "*.api.test", mcp.Ask},
		{"a.corp.test:443", "a.corp.test:443", mcp.Listed},
		{"a.corp.test", "a.corp.test:443,8443", mcp.Listed},
		{"*.a.corp.test:8443", "*.a.corp.test:8443", mcp.Listed},
		{"a.corp.test:22", "a.corp.test:22", mcp.Ask},
		{"corp.test", "corp.test", mcp.Ask},
		{"a.corp.test:443 methods=GET", "a.corp.test:443 methods=GET", mcp.Listed},
		{"a.corp.test:443 private", "", mcp.Refused},
		{"front.test ech", "front.test ech", mcp.Listed},
		{"api.test ech", "", mcp.Refused}, {"x.test ech", "", mcp.Refused}, {npm + ":443 ech", "", mcp.Refused}, {"ech", "", mcp.Refused},
		{"tcp://a.corp.test:443", "tcp://a.corp.test:443", mcp.Ask},
		{"db.inner.test:5432", "db.inner.test:5432 private", mcp.Listed},
		{"db.inner.test:5432 private", "db.inner.test:5432 private", mcp.Listed},
		{"other.inner.test:5432 private", "", mcp.Refused},
		{"read.test:443", "read.test:443 methods=GET,HEAD path=/v1/*", mcp.Listed},
		{"read.test:443 methods=GET,HEAD path=/v1/*", "read.test:443 methods=GET,HEAD path=/v1/*", mcp.Listed},
		{"read.test:443 methods=POST", "read.test:443 methods=POST", mcp.Ask},
		{"10.1.0.0/16:5432", "10.1.0.0/16:5432", mcp.Listed},
		{"10.1.2.3:5432", "", mcp.Refused},
		{"10.1.0.0/16", "", mcp.Refused},
		{"[fd00::1]:443", "[fd00::1]:443", mcp.Listed},
		{"printer.local", "printer.local:80", mcp.Listed},
		{"printer.local:631", "", mcp.Refused},
		{"git.test:22", "git.test:22", mcp.Listed},
		{"tcp://git.test:22", "tcp://git.test:22", mcp.Listed},
		{npm, "", mcp.Listed}, // the mode allows it
		{npm + ":443", "", mcp.Listed},
		{npm + ":80", npm + ":80", mcp.Ask},
		{"BÜCHER.example", "xn--bcher-kva.example", mcp.Ask},
		{"8.8.8.8", "", mcp.Refused}, {"0.0.0.0/0", "", mcp.Refused}, {"64.0.0.0/2:80", "", mcp.Refused}, {"::/0", "", mcp.Refused}, {"[::1]:80", "", mcp.Refused},
		{"169.254.169.254", "", mcp.Refused}, {"127.0.0.1:80", "", mcp.Refused}, {"192.168.0.0/16", "", mcp.Refused}, {"0x7f.1", "", mcp.Refused}, {"2130706433", "", mcp.Refused},
		{"localhost", "", mcp.Refused}, {"x.localhost:80", "", mcp.Refused}, {"router", "", mcp.Refused}, {"nas.lan", "", mcp.Refused}, {"*.internal", "", mcp.Refused},
		{"metadata.google.internal", "", mcp.Refused}, {"1.0.0.127.in-addr.arpa", "", mcp.Refused},
		{"*.com", "", mcp.Refused}, {"*.github.io", "", mcp.Refused}, {"*", "", mcp.Refused}, {"", "", mcp.Refused}, {"https://x.test/", "", mcp.Refused}, {"x.test y.test", "", mcp.Refused},
	} {
		use, v, err := d.decide("package-managers", c.words)
		if use != c.use || v != c.verdict || (err != nil) != (v == mcp.Refused) {
			t.Errorf("%q: %q, verdict %d, %v; want %q, %d", c.words, use, v, err, c.use, c.verdict)
		}
	}
	if use, v, err := d.decide("none", npm+":443"); use != npm+":443" || v != mcp.Ask || err != nil {
		t.Errorf("without the mode: %q %d %v", use, v, err)
	}
	for _, list := range []string{"not/a/name", "443", "*.com", "https://x.test", "x.test sideways=1"} {
		if _, err := parseDomains(list); err == nil || !strings.Contains(err.Error(), varDomains) {
			t.Errorf("%q: %v", list, err)
		}
	}
	if d, err := parseDomains(" \n"); err != nil || d.listed != nil {
		t.Errorf("an empty list: %v %v", d, err)
	}
}
