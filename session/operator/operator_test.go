package operator

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/images"
	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/session"
)

func of(t *testing.T, b session.Bounds, c Caller) *Policy {
	t.Helper()
	p, err := New(b, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEscapeM1Decide checks that exactly the rules that an operator listed are allowed to a model. For other rules a person
// is asked only about public names of the Internet.
func TestEscapeM1Decide(t *testing.T) {
	const list = `api.test, *.corp.test:443,8443 db.inner.test:5432 private
		10.1.0.0/16:5432  read.test:443 methods=GET,HEAD path=/v1/* printer.local:80 [fd00::1]:443 tcp://git.test:22 front.test ech`
	rules, err := ParseRules(list)
	if err != nil || len(rules) != 9 {
		t.Fatalf("%v %v", rules, err)
	}
	d := of(t, session.Bounds{AllowedDomains: rules}, Caller{Model: true})
	npm := policy.Ecosystems()[0].Hosts()[0]
	for _, c := range []struct {
		words, use string
		verdict    Verdict
	}{
		{"api.test:443", "api.test:443", Allowed},
		{"API.test:443", "API.test:443", Allowed},
		{"api.test:22", "api.test:22", Ask},
		{"api.test:*", "api.test:*", Ask},
		{"x.api.test", "x.api.test", Ask},
		{"*.api.test", "*.api.test", Ask},
		{"a.corp.test:443", "a.corp.test:443", Allowed},
		{"a.corp.test", "a.corp.test:443,8443", Allowed},
		{"*.a.corp.test:8443", "*.a.corp.test:8443", Allowed},
		{"a.corp.test:22", "a.corp.test:22", Ask},
		{"corp.test", "corp.test", Ask},
		{"a.corp.test:443 methods=GET", "a.corp.test:443 methods=GET", Allowed},
		{"a.corp.test:443 private", "", Refused},
		{"front.test ech", "front.test ech", Allowed},
		{"api.test ech", "", Refused}, {"x.test ech", "", Refused}, {npm + ":443 ech", "", Refused}, {"ech", "", Refused},
		{"tcp://a.corp.test:443", "tcp://a.corp.test:443", Ask},
		{"db.inner.test:5432", "db.inner.test:5432 private", Allowed},
		{"db.inner.test:5432 private", "db.inner.test:5432 private", Allowed},
		{"other.inner.test:5432 private", "", Refused},
		{"read.test:443", "read.test:443 methods=GET,HEAD path=/v1/*", Allowed},
		{"read.test:443 methods=GET,HEAD path=/v1/*", "read.test:443 methods=GET,HEAD path=/v1/*", Allowed},
		{"read.test:443 methods=POST", "read.test:443 methods=POST", Ask},
		{"10.1.0.0/16:5432", "10.1.0.0/16:5432", Allowed},
		{"10.1.2.3:5432", "", Refused},
		{"10.1.0.0/16", "", Refused},
		{"[fd00::1]:443", "[fd00::1]:443", Allowed},
		{"printer.local", "printer.local:80", Allowed},
		{"printer.local:631", "", Refused},
		{"git.test:22", "git.test:22", Allowed},
		{"tcp://git.test:22", "tcp://git.test:22", Allowed},
		{npm, "", Allowed}, // the mode allows it
		{npm + ":443", "", Allowed},
		{npm + ":80", npm + ":80", Ask},
		{"BÜCHER.example", "xn--bcher-kva.example", Ask},
		{"8.8.8.8", "", Refused}, {"0.0.0.0/0", "", Refused}, {"64.0.0.0/2:80", "", Refused}, {"::/0", "", Refused}, {"[::1]:80", "", Refused},
		{"169.254.169.254", "", Refused}, {"127.0.0.1:80", "", Refused}, {"192.168.0.0/16", "", Refused}, {"0x7f.1", "", Refused}, {"2130706433", "", Refused},
		{"localhost", "", Refused}, {"x.localhost:80", "", Refused}, {"router", "", Refused}, {"nas.lan", "", Refused}, {"*.internal", "", Refused},
		{"metadata.google.internal", "", Refused}, {"1.0.0.127.in-addr.arpa", "", Refused},
		{"*.com", "", Refused}, {"*.github.io", "", Refused}, {"*", "", Refused}, {"", "", Refused}, {"https://x.test/", "", Refused}, {"x.test y.test", "", Refused},
	} {
		use, v, err := d.Rule("package-managers", c.words)
		if use != c.use || v != c.verdict || (err != nil) != (v == Refused) {
			t.Errorf("%q: %q, verdict %d, %v; want %q, %d", c.words, use, v, err, c.use, c.verdict)
		}
	}
	if use, v, err := d.Rule("none", npm+":443"); use != npm+":443" || v != Ask || err != nil {
		t.Errorf("without the mode: %q %d %v", use, v, err)
	}
	for _, list := range []string{"not/a/name", "443", "*.com", "https://x.test", "x.test sideways=1"} {
		if _, err := ParseRules(list); err == nil || !strings.Contains(err.Error(), VarDomains) {
			t.Errorf("%q: %v", list, err)
		}
	}
	if all, err := ParseRules(" \n"); err != nil || all != nil {
		t.Errorf("an empty list: %v %v", all, err)
	}
}

// TestEscapeM1Narrowed checks that a client that is not a model gets the part of a rule that the operator lists, and no more.
func TestEscapeM1Narrowed(t *testing.T) {
	p := of(t, session.Bounds{Egress: "package-managers", AllowedDomains: []string{"read.test:443 methods=GET path=/v1/*", "a.test"}}, Caller{Namespace: "team"})
	for words, want := range map[string]string{
		"read.test:443": "read.test:443 methods=GET path=/v1/*", "read.test": "read.test:443 methods=GET path=/v1/*", "a.test:443": "a.test:443",
		"b.test": "", "read.test:22": "", "10.0.0.1": "", "*.test": "",
	} {
		e, err := p.Network(session.Egress{Mode: "none", Allow: []string{words}})
		if got := strings.Join(e.Allow, " "); err == nil && got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %q %v, want %q", words, got, err, want)
		}
	}
	for mode, allowed := range map[string]bool{"": true, "none": true, "package-managers": true, "open": false, "all": false} {
		if _, err := p.Network(session.Egress{Mode: mode}); (err == nil) != allowed {
			t.Errorf("mode %q: %v", mode, err)
		}
	}
	closed := of(t, session.Bounds{Egress: "none"}, Caller{})
	if e, err := closed.Network(session.Egress{Mode: closed.Widest(), Ask: time.Second}); err != nil || e.Mode != "none" || e.Ask != 0 {
		t.Errorf("without a network: %+v %v", e, err)
	}
	if _, err := closed.Network(session.Egress{Allow: []string{"a.test"}}); !errors.Is(err, ErrRefused) {
		t.Errorf("a rule without a network: %v", err)
	}
}

// TestModes checks that models cannot ask for a mode that allows every destination.
func TestModes(t *testing.T) {
	for widest, want := range map[string]string{"": "none package-managers", "open": "none package-managers", "package-managers": "none package-managers", "none": "none"} {
		if got := strings.Join(of(t, session.Bounds{Egress: widest}, Caller{Model: true}).Modes(), " "); got != want {
			t.Errorf("up to %q: %q", widest, got)
		}
	}
	if got := strings.Join(of(t, session.Bounds{}, Caller{}).Modes(), " "); got != "none package-managers open" {
		t.Errorf("of a client: %q", got)
	}
	if _, err := New(session.Bounds{Egress: "all"}, Caller{}); err == nil {
		t.Error("an unknown mode is accepted")
	}
}

// TestAgent checks who may run an agent with the operator's credentials, and with which network.
func TestAgent(t *testing.T) {
	for _, c := range []struct {
		namespace, allowed, egress string
		research, want             bool
	}{
		{"", "", "", false, true}, {"", "", "", true, true}, {"", "", "open", true, true}, {"", "", "package-managers", true, false}, {"", "", "none", false, true},
		{"team", "", "", false, false}, {"team", "false", "", false, false}, {"team", "maybe", "", false, false}, {"team", "true", "", false, true},
		{"team", "true", "none", true, false}, {"team", "true", "open", true, true},
	} {
		env := map[string]string{VarAgents: c.allowed, VarEgress: c.egress}
		b, err := FromEnvironment(func(name string) string { return env[name] })
		if err != nil {
			t.Fatal(err)
		}
		if err := of(t, b, Caller{Namespace: c.namespace, Model: true}).Agent(c.research); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestImages checks which images callers may use, and which only from the store.
func TestImages(t *testing.T) {
	for _, c := range []struct {
		list      []string
		caller    Caller
		name      string
		ok, local bool
	}{
		{nil, Caller{}, "quay.test/any", true, false}, {nil, Caller{}, "dir:/etc", false, false}, {nil, Caller{}, "oci:/tmp/x", false, false},
		{[]string{"local/*"}, Caller{}, "quay.test/any", false, false}, {[]string{"local/*"}, Caller{}, "local/a", true, true},
		{nil, Caller{Namespace: "team"}, "quay.test/any", false, false}, {nil, Caller{Namespace: "team"}, "python", true, false},
		{nil, Caller{Namespace: "team", Model: true}, "local/built-by-models/a", false, false}, {nil, Caller{Model: true}, "local/built-by-models/a", true, true},
		{nil, Caller{Model: true}, "quay.test/any", false, false}, {nil, Caller{Model: true}, "", true, false}, {nil, Caller{Model: true}, "host", true, false},
	} {
		_, pull, err := of(t, session.Bounds{AllowedImages: c.list}, c.caller).Image(c.name)
		if (err == nil) != c.ok || (pull == images.PullNever) != c.local || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%+v: %q %v", c, pull, err)
		}
	}
	if _, _, err := of(t, session.Bounds{Image: "dir:/"}, Caller{Namespace: "team"}).Image("dir:/"); err != nil {
		t.Errorf("the operator's default: %v", err)
	}
}

// TestGrant checks what a caller gets that asks for more than the bounds, for less, and for nothing.
func TestGrant(t *testing.T) {
	p := of(t, session.Bounds{Max: runner.Limits{Memory: 1 << 20, CPUs: 0.5, PIDs: 9, Disk: 1 << 20}, MaxTimeout: time.Minute}, Caller{Namespace: "team"})
	whole := runner.Limits{Memory: 1 << 20, CPUs: 0.5, PIDs: 9, Disk: 1 << 20}
	for _, c := range []struct {
		asked, want runner.Limits
		reduced     int
		filled      string
	}{
		{runner.Limits{}, whole, 0, "memory cpus pids disk"}, {runner.Limits{Memory: 1 << 30, CPUs: 4, PIDs: 10, Disk: 2 << 20}, whole, 4, ""},
		{runner.Limits{Memory: 5, CPUs: 0.1, PIDs: 1, Disk: 7}, runner.Limits{Memory: 5, CPUs: 0.1, PIDs: 1, Disk: 7}, 0, ""},
		{runner.Limits{Memory: -1, CPUs: -1, PIDs: -1, Disk: -1}, whole, 0, "memory cpus pids disk"},
	} {
		got := p.Grant(c.asked, 0)
		if got.Limits != c.want || len(got.Reduced) != c.reduced || strings.Join(got.Filled, " ") != c.filled || got.Timeout != time.Minute {
			t.Errorf("%+v: %+v", c.asked, got)
		}
	}
	said := p.Grant(runner.Limits{PIDs: 10}, time.Hour).Warnings()
	if want := []string{"limits.pids: reduced from 10 to 9, the operator's maximum", "timeout_ms: reduced from 3600000 to 60000, the operator's maximum"}; !slices.Equal(said, want) {
		t.Errorf("%q", said)
	}
	if got := p.Change(runner.Limits{PIDs: 100}); got != (runner.Limits{PIDs: 9}) {
		t.Errorf("a change: %+v", got)
	}
	for asked, want := range map[time.Duration]time.Duration{0: time.Minute, -1: time.Minute, time.Second: time.Second, time.Hour: time.Minute} {
		if got := p.Time(asked); got != want {
			t.Errorf("%v: %v", asked, got)
		}
	}
	if of(t, session.Bounds{}, Caller{}).Time(0) != 0 {
		t.Error("a time without a bound")
	}
}

// TestHostPath checks who may use which paths of this machine, and that no path leads elsewhere: through a link that a caller or
// a sandbox made, by .., or above what is allowed.
func TestHostPath(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/data/in", "/data/out/below", "/database", "/home"} {
		if err := os.MkdirAll(top+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(top+"/data/in/file", nil, 0o600)
	os.Symlink(top+"/home", top+"/data/out/link")
	os.Symlink(top+"/nowhere", top+"/data/out/gone")
	os.Symlink(top+"/data/out/below", top+"/data/out/inner")
	own, token, caller := Asker{Operator: true, Own: true}, Asker{Operator: true}, Asker{Own: true}
	operator := of(t, session.Bounds{}, Caller{})
	listed := of(t, session.Bounds{AllowedMounts: []string{top + "/data", top + "/data/out:rw"}}, Caller{Namespace: "team"})
	for _, c := range []struct {
		p          *Policy
		who        Asker
		path, mode string
		want       string // part of the refusal; empty: allowed
	}{
		{operator, own, "/home", "rw", ""}, {operator, own, "/data/in/file", "ro", ""}, {operator, own, "/data", "cow", ""}, {operator, own, "/data", "", ""},
		{operator, own, "/data/in/file", "rw", "not a directory"}, {operator, own, "/data/in/file", "cow", "not a directory"}, {operator, own, "/none", "ro", "no such file"},
		{operator, own, "/data/out/link", "ro", "symbolic link"}, {operator, own, "/data/../home", "ro", "without . and .."}, {operator, own, "/data", "w", "mode"},
		{operator, token, "/home", "ro", "does not allow"}, {operator, caller, "/home", "ro", "does not allow"},
		{of(t, session.Bounds{}, Caller{Model: true}), own, "/home", "ro", "does not allow"}, {of(t, session.Bounds{}, Caller{Namespace: "team"}), own, "/home", "ro", "does not allow"},
		{listed, caller, "/data", "ro", ""}, {listed, caller, "/data/in/file", "", ""}, {listed, caller, "/data/out/below", "rw", ""},
		{listed, caller, "/data/in", "rw", "does not allow"}, {listed, caller, "/data", "rw", "does not allow"}, {listed, caller, "/data/out", "cow", "namespace"},
		{listed, caller, "", "ro", "does not allow"}, {listed, caller, "/database", "ro", "does not allow"}, {listed, caller, "/home", "ro", "does not allow"},
		{listed, caller, "/data/../home", "ro", "without . and .."}, {listed, caller, "/data/out/link", "ro", "symbolic link"}, {listed, caller, "/data/out/link", "rw", "symbolic link"},
		{listed, caller, "/data/out/inner", "rw", "symbolic link"}, {listed, caller, "/data/out/link/x", "rw", "symbolic link"}, {listed, caller, "/data/out/gone", "ro", "symbolic link"}, {listed, caller, "/data/", "ro", "without . and .."},
		{listed, caller, "/none", "ro", "does not allow"},
	} {
		m, apart, err := c.p.Mount(c.who, session.HostMount{Source: top + c.path, Mode: c.mode})
		switch {
		case c.want == "" && (err != nil || m.Source != top+c.path || m.Target != m.Source || m.ReadOnly != (c.mode == "" || c.mode == "ro") || apart != (c.mode == "cow")):
			t.Errorf("%s %s: %+v %v %v", c.path, c.mode, m, apart, err)
		case c.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), top+"/home") && c.path != "/home" && !strings.Contains(c.path, "..")):
			t.Errorf("%s %s: %v, want %q", c.path, c.mode, err, c.want)
		}
	}
	for _, target := range []string{"relative", "/a/../b", "/a/", "/\xff"} {
		if _, _, err := operator.Mount(own, session.HostMount{Source: top, Target: target}); !errors.Is(err, ErrRefused) {
			t.Errorf("target %q: %v", target, err)
		}
	}
	for _, words := range []string{"data", "/a/..", "", ":rw", "/a/"} {
		if _, err := New(session.Bounds{AllowedMounts: []string{words}}, Caller{}); err == nil {
			t.Errorf("%q is accepted", words)
		}
	}
}
