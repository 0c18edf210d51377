package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestUnresolved checks that an allowed name that does not resolve differs from a denial, for each way to the proxy, and
// that the reason names no resolver of the host.
func TestUnresolved(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "ghost.test:*")})
	if _, resp, body := r.connect("ghost.test:443"); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "could not reach") {
		t.Errorf("CONNECT: %s %s", resp.Status, body)
	}
	if code, body, err := get(t, r.client(nil), "http://ghost.test/"); err != nil || code != http.StatusBadGateway || !strings.Contains(body, "could not reach") {
		t.Errorf("HTTP: %d %s, %v", code, body, err)
	}
	at := netip.AddrPortFrom(r.address("ghost.test"), 22).String()
	r.serve(at, r.proxy.ServeNamed)
	if c, err := net.Dial("tcp", at); err == nil { // otherwise it was reset at once
		io.ReadAll(c)
		c.Close()
	}
	if _, resp, _ := r.connect("other.test:443"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a denied name: %s", resp.Status)
	}
	for len(r.proxy.Blocked()) < 4 { // a flow ends after its answer
		runtime.Gosched()
	}
	const reason = "the name does not resolve: no such host"
	got := r.proxy.Blocked()
	for _, port := range []uint16{443, 80, 22} {
		want := Blocked{Host: "ghost.test", Port: port, Reason: reason, Times: 1, Failed: true}
		if !slices.Contains(got, want) {
			t.Errorf("no %+v in %+v", want, got)
		}
	}
	if i := slices.IndexFunc(got, func(b Blocked) bool { return b.Host == "other.test" }); i < 0 || got[i].Failed || len(got) != 4 {
		t.Errorf("denied: %+v", got)
	}
}
