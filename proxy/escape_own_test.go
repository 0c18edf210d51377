package proxy

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"

	"demesne/internal/need"
	"demesne/proxy/policy"
)

// ip configures the network namespace of the tests.
func ip(t *testing.T, args ...string) {
	t.Helper()
	program, err := exec.LookPath("ip")
	if err != nil {
		program = "/usr/sbin/ip"
	}
	need.Program(t, program)
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// TestEscapeN34LocalByRoute checks addresses that a route makes local, though no interface has them. They need a
// rule that names them.
func TestEscapeN34LocalByRoute(t *testing.T) {
	ip(t, "route", "add", "local", "9.8.0.0/16", "dev", "lo")
	ip(t, "route", "add", "broadcast", "9.9.0.7", "dev", "lo")
	ip(t, "-6", "route", "add", "local", "2a00:1450:9::/64", "dev", "lo")
	ip(t, "-6", "route", "add", "anycast", "2a00:1450:a::7", "dev", "lo")
	echo(t, "[::]:77")
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(policy.Everything()), Own: OwnAddress})
	for name, a := range map[string]string{"v4.test.": "9.8.7.6", "v6.test.": "2a00:1450:9::5"} {
		r.world.at[name] = []netip.Addr{netip.MustParseAddr(a)}
	}
	for _, target := range []string{"9.8.7.6:77", "[2a00:1450:9::5]:77", "v4.test:77", "v6.test:77", "9.9.0.7:77", "[2a00:1450:a::7]:77"} {
		if _, resp, body := r.connect(target); resp.StatusCode != 403 {
			t.Errorf("%s: %s %s", target, resp.Status, body)
		}
	}
	r.blocked("v4.test resolves to 9.8.7.6 (this host), which no rule lists")
	r.proxy.SetPolicy(allow(t, "v4.test:77", "9.8.7.6:77", "[2a00:1450:9::]/64:77"))
	for _, target := range []string{"v4.test:77", "[2a00:1450:9::5]:77"} {
		if _, resp, body := r.connect(target); resp.StatusCode != 200 {
			t.Errorf("%s, which a rule names: %s %s", target, resp.Status, body)
		}
	}
}

// TestEscapeN14N23Own checks that the host's own addresses, public ones and the proxy's own port included, need a
// rule that names them.
func TestEscapeN14N23Own(t *testing.T) {
	ip(t, "addr", "add", "9.10.0.77/32", "dev", "lo")
	echo(t, "9.10.0.77:7")
	me := []netip.Addr{netip.MustParseAddr("9.10.0.77")}
	for _, c := range []struct {
		policy policy.Policy
		want   int
	}{
		{policy.Policy{}.Allow(policy.Everything()), 403},
		{allow(t, "me.test:7", "9.10.0.77:7"), 200},
		{allow(t, "me.test:7", "9.10.0.77:8"), 403},
	} {
		r := newRig(t, Config{Policy: c.policy, Own: OwnAddress})
		r.world.at["me.test."] = me
		if _, resp, body := r.connect("me.test:7"); resp.StatusCode != c.want {
			t.Errorf("%v: %s %s", c.policy.Allowed(), resp.Status, body)
		}
		if _, resp, body := r.connect("9.10.0.77:7"); resp.StatusCode != c.want {
			t.Errorf("%v: %s %s", c.policy.Allowed(), resp.Status, body)
		}
	}
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(policy.Everything())})
	if _, resp, _ := r.connect(r.addr); resp.StatusCode != 403 {
		t.Errorf("the proxy itself: %s", resp.Status)
	}
}

// TestOwnUnknown checks that the proxy dials only addresses that a rule names while it cannot ask the kernel, for
// example without free descriptors.
func TestOwnUnknown(t *testing.T) {
	echo(t, "8.0.0.2:7")
	unknown := func(netip.AddrPort) (bool, error) { return false, syscall.EMFILE }
	for words, want := range map[string]int{"other.test:7": 403, "8.0.0.0/8:7": 200} {
		r := newRig(t, Config{Policy: allow(t, "good.test:7", words), Own: unknown}, "good.test")
		if _, resp, body := r.connect("good.test:7"); resp.StatusCode != want {
			t.Errorf("%s: %s %s", words, resp.Status, body)
		}
	}
}

// TestReusedAddress checks that a request does not use an idle connection to an address that only another rule
// permits.
func TestReusedAddress(t *testing.T) {
	ip(t, "addr", "add", "10.9.9.9/32", "dev", "lo")
	serveHTTP(t, "10.9.9.9:80", hello200)
	rule := allow(t, "mixed.test").Allowed()[0]
	inside, err := rule.Private().Requests(nil, "/inside/*")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(inside, rule)})
	r.world.at["mixed.test."] = []netip.Addr{netip.MustParseAddr("10.9.9.9")}
	for _, q := range []struct {
		path string
		want int
	}{{"/", 403}, {"/inside/x", 200}, {"/", 403}, {"/inside/x", 200}} {
		if code, body, err := get(t, r.client(nil), "http://mixed.test"+q.path); err != nil || code != q.want {
			t.Errorf("%s: %d %s %v", q.path, code, body, err)
		}
	}
}

// TestReusedClosed checks that a request is sent again if the server closes the idle connection that carries it.
func TestReusedClosed(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	answerOnce(t, l, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		c.Close()
	})
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	for range 3 {
		if code, body, err := get(t, r.client(nil), "http://good.test/"); err != nil || code != 200 {
			t.Fatal(code, body, err)
		}
	}
}
