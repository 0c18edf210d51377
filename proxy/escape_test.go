package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"demesne/proxy/policy"
)

// TestEscapeN2NUL checks that a name which another parser would truncate is rejected as a whole, in CONNECT,
// SOCKS and DNS.
func TestEscapeN2NUL(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "*.allowed.test", "allowed.test")}, "evil.test", "allowed.test")
	for _, target := range []string{
		"evil.test%00.allowed.test:443", "evil.test\x00.allowed.test:443", "evil.test\\.allowed.test:443", "evil.test#.allowed.test:443",
		"user@allowed.test:443", "allowed.test", "allowed.test:", "allowed.test:0", "allowed.test:+443", "allowed.test:0443", "allowed.test:65536", ":443", "[allowed.test]:443",
	} {
		c := r.dial(r.addr)
		fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || (resp.StatusCode != 403 && resp.StatusCode != 400) {
			t.Errorf("CONNECT %q: %v %v", target, resp, err)
		}
	}
	for _, host := range []string{"evil.test\x00.allowed.test", "evil.test%00.allowed.test", "allowed.test:443", "evil.test\n.allowed.test", ""} {
		if code := r.socks(3, append([]byte{byte(len(host))}, host...), 443); code != socksForbidden {
			t.Errorf("SOCKS %q: %d", host, code)
		}
	}
	for _, name := range []string{`evil.test\000.allowed.test.`, `evil\.test.allowed.test.`, `a\010.allowed.test.`} {
		if a := r.query(name, 1); len(a.Answer) != 0 || a.Rcode != 3 {
			t.Errorf("DNS %q: %v", name, a)
		}
	}
	if asked := r.world.names(); len(asked) != 0 {
		t.Errorf("resolved %q", asked)
	}
}

// TestEscapeN3OneSpelling checks that matching and dialling use the same name, for every spelling of it.
func TestEscapeN3OneSpelling(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "allowed.test:*")}, "allowed.test")
	for _, spelled := range []string{"ALLOWED.test", "allowed.test.", "aLLowed.TEST."} {
		if _, resp, body := r.connect(spelled + ":7"); resp.StatusCode != 200 {
			t.Errorf("%s: %s %s", spelled, resp.Status, body)
		}
	}
	for _, spelled := range []string{"allowed。test", "ａllowed.test", "ALLOWED.test."} {
		if code := r.socks(3, append([]byte{byte(len(spelled))}, spelled...), 7); code != socksOK {
			t.Errorf("%s: %d", spelled, code)
		}
	}
	for _, name := range r.world.names() {
		if name != "allowed.test." {
			t.Errorf("resolved %q", name)
		}
	}
}

// TestEscapeN5PlainHTTP checks that the rules of a tunnel also apply to an absolute URL.
func TestEscapeN5PlainHTTP(t *testing.T) {
	serveHTTP(t, "8.0.0.3:80", hello200)
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test", "evil.test")
	if code, body, err := get(t, r.client(nil), "http://evil.test/"); err != nil || code != 403 {
		t.Error(code, body, err)
	}
	for _, line := range []string{"GET ftp://allowed.test/ HTTP/1.1", "GET https://allowed.test/ HTTP/1.1", "GET / HTTP/1.1", "GET http://u:p@allowed.test/ HTTP/1.1"} {
		if resp := r.raw(line + "\r\nHost: allowed.test\r\n\r\n"); resp.StatusCode != 400 {
			t.Errorf("%s: %s", line, resp.Status)
		}
	}
}

// raw sends text to the proxy and returns the first response.
func (r *rig) raw(text string) *http.Response {
	r.t.Helper()
	c := r.dial(r.addr)
	io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		r.t.Fatalf("%q: %v", text, err)
	}
	return resp
}

// TestEscapeN6Smuggling checks that a server sees the Host that was decided on, and one request for each
// decision.
func TestEscapeN6Smuggling(t *testing.T) {
	seen := make(chan string, 10)
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen <- fmt.Sprintf("%s %s %d", r.Host, r.RequestURI, len(b))
	})
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test")
	for text, want := range map[string]string{
		"GET http://allowed.test/a HTTP/1.1\r\nHost: evil.test\r\n\r\n":                                                                                     "allowed.test /a 0",
		"POST http://allowed.test/b HTTP/1.1\r\nHost: x\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n": "allowed.test /b 0",
	} {
		if resp := r.raw(text); resp.StatusCode != 200 {
			t.Errorf("%q: %s", text, resp.Status)
		}
		if got := <-seen; got != want {
			t.Errorf("%q: the server saw %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{
		"GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"POST http://allowed.test/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"GET http://allowed.test/ HTTP/1.1\r\nHost: a b\r\n\r\n",
	} {
		if resp := r.raw(text); resp.StatusCode/100 == 2 {
			t.Errorf("%q: %s", text, resp.Status)
		}
	}
	select {
	case got := <-seen:
		t.Errorf("the server saw %q too", got)
	default:
	}
}

// TestEscapeN6NamedHost checks that on port 80 of a name every request must be for that name.
func TestEscapeN6NamedHost(t *testing.T) {
	serveHTTP(t, "8.0.0.2:80", hello200)
	r := newRig(t, Config{Policy: allow(t, "allowed.test", "other.test")}, "allowed.test", "other.test")
	for _, open := range []func() net.Conn{
		func() net.Conn { return r.named("allowed.test", 80) },
		func() net.Conn { c, _, _ := r.connect("allowed.test:80"); return c },
	} {
		c := open()
		br := bufio.NewReader(c)
		for _, q := range []struct {
			text string
			want int
		}{
			{"GET / HTTP/1.1\r\nHost: allowed.test:80\r\n\r\n", 200},
			{"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 403}, // the connection ends after it
		} {
			io.WriteString(c, q.text)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != q.want {
				t.Fatalf("%q: %v %v", q.text, resp, err)
			}
			io.Copy(io.Discard, resp.Body)
		}
		if _, err := br.ReadByte(); err == nil {
			t.Error("the connection goes on")
		}
	}
	r.blocked(`HTTP names host "other.test", not "allowed.test"`)
	c := r.named("other.test", 80)
	io.WriteString(c, "SSH-2.0-OpenSSH\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && resp.StatusCode != 400 {
		t.Errorf("no HTTP: %v", resp)
	}
}

// TestEscapeN11Rebinding checks that the proxy dials an address of the answer that it checked. It never resolves
// a second time.
func TestEscapeN11Rebinding(t *testing.T) {
	echo(t, "127.0.0.1:7")
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "rebind.test:*", "mixed.test:*")})
	set := func(name string, addrs ...string) {
		r.world.mu.Lock()
		defer r.world.mu.Unlock()
		r.world.at[name] = nil
		for _, a := range addrs {
			r.world.at[name] = append(r.world.at[name], netip.MustParseAddr(a))
		}
	}
	for _, a := range []string{"127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1", "0.0.0.0", "::", "64:ff9b::7f00:1", "2002:7f00:1::", "198.19.0.1"} {
		set("rebind.test.", a)
		if _, resp, body := r.connect("rebind.test:7"); resp.StatusCode != 403 || !strings.Contains(body, "which no rule lists") {
			t.Errorf("%s: %s %s", a, resp.Status, body)
		}
	}
	set("mixed.test.", "127.0.0.1", "8.0.0.2")
	c, resp, body := r.connect("mixed.test:7")
	if resp.StatusCode != 200 {
		t.Error(resp.Status, body)
	}
	c.Close()
	if rec := r.records(10)[9]; rec.Address != "8.0.0.2:7" {
		t.Errorf("%+v", rec)
	}
	if n := len(r.world.names()); n != 10 {
		t.Errorf("resolved %d times for 10 connections", n)
	}
}

// refused is a Dialer that counts its calls and always fails.
type refused struct{ dialled atomic.Int64 }

func (r *refused) DialContext(context.Context, string, string) (net.Conn, error) {
	r.dialled.Add(1)
	return nil, syscall.ECONNREFUSED
}

// TestEscapeN11Many checks that the proxy dials only a few addresses of a name, even if its owner returns
// thousands.
func TestEscapeN11Many(t *testing.T) {
	d := &refused{}
	r := newRig(t, Config{Policy: allow(t, "many.test"), Dialer: d})
	for a := netip.MustParseAddr("8.0.0.1"); len(r.world.at["many.test."]) < 4000; a = a.Next() {
		r.world.at["many.test."] = append(r.world.at["many.test."], a)
	}
	if _, resp, body := r.connect("many.test:443"); resp.StatusCode != 502 {
		t.Error(resp.Status, body)
	}
	if n := d.dialled.Load(); n != mostTried {
		t.Errorf("%d addresses were dialled", n)
	}
	if e := r.records(1)[0].Error; len(e) > 1000 {
		t.Errorf("%d bytes of error in the log", len(e))
	}
}

// TestEscapeN12N13Literals checks spellings of addresses, and cloud metadata services, in open mode.
func TestEscapeN12N13Literals(t *testing.T) {
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(policy.Everything())})
	r.world.at["metadata.google.internal."] = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	for _, host := range []string{
		"127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
		"[2002:7f00:1::]", "[fe80::1%25lo]", "[fe80::1%lo]", "0.0.0.0", "[::]", "localhost",
		"169.254.169.254", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "metadata.google.internal",
	} {
		r.world.at["localhost"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		if _, resp, body := r.connect(host + ":80"); host != "localhost" && host != "metadata.google.internal" && resp.StatusCode/100 != 4 {
			t.Errorf("%s: %s %s", host, resp.Status, body)
		}
		if resp := r.raw("GET http://" + host + "/ HTTP/1.1\r\nHost: x\r\n\r\n"); resp.StatusCode/100 != 4 {
			t.Errorf("GET %s: %s", host, resp.Status)
		}
	}
}

// short is a listener that fails once for lack of descriptors.
type short struct {
	net.Listener
	failed bool
}

func (s *short) Accept() (net.Conn, error) {
	if !s.failed {
		s.failed = true
		return nil, syscall.EMFILE
	}
	return s.Listener.Accept()
}

// TestDNSWithoutDescriptors checks that the proxy retries accepting TCP queries while no descriptors are free.
func TestDNSWithoutDescriptors(t *testing.T) {
	r := newRig(t, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := (&counted{&short{Listener: l}, r.proxy}).Accept(); err != nil {
		t.Error(err)
	} else {
		got.Close()
	}
}

// TestEscapeN15Redirects checks that the proxy follows no redirects.
func TestEscapeN15Redirects(t *testing.T) {
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://evil.test/", http.StatusFound)
	})
	r := newRig(t, Config{Policy: allow(t, "allowed.test")}, "allowed.test", "evil.test")
	if code, _, err := get(t, r.client(nil), "http://allowed.test/"); err != nil || code != 302 {
		t.Error(code, err)
	}
	if code, _, err := get(t, r.client(nil), "http://evil.test/"); err != nil || code != 403 {
		t.Error(code, err)
	}
	if asked := strings.Join(r.world.names(), " "); asked != "allowed.test." {
		t.Errorf("resolved %q", asked)
	}
}

// TestEscapeN17Audited checks that the log has the labels that a client adds below a wildcard.
func TestEscapeN17Audited(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "*.zone.test")})
	r.query("c2VjcmV0.zone.test.", 1)
	if rec := r.records(1)[0]; rec.Via != "dns" || rec.Host != "c2vjcmv0.zone.test" || rec.Rule != "*.zone.test" {
		t.Errorf("%+v", rec)
	}
}

// TestEscapeN18PolicyFirst checks that no entry point resolves a denied name.
func TestEscapeN18PolicyFirst(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "allowed.test:1")}, "evil.test", "allowed.test")
	r.connect("evil.test:443")
	r.connect("allowed.test:443")
	get(t, r.client(nil), "http://evil.test/")
	r.socks(3, append([]byte{9}, "evil.test"...), 443)
	for _, kind := range []uint16{1, 28, 16, 10, 255, 12, 65, 64, 5, 2, 6, 33} {
		if a := r.query("evil.test.", kind); a.Rcode != 3 || len(a.Answer) != 0 {
			t.Errorf("type %d: %v", kind, a)
		}
		r.query("secret.allowed.test.", kind)
		r.query("1.0.0.127.in-addr.arpa.", kind)
	}
	if asked := r.world.names(); len(asked) != 0 {
		t.Errorf("resolved %q", asked)
	}
}

// upgrades serves connections that look like WebSockets. It sends back up to most bytes on each.
func upgrades(t *testing.T, most int64) {
	t.Helper()
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		io.CopyN(c, rw, most)
	})
}

const upgrade = " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eHg=\r\n\r\n"

// TestEscapeN24Upgrade checks that a WebSocket connects to the host that was decided on.
func TestEscapeN24Upgrade(t *testing.T) {
	upgrades(t, 4)
	r := newRig(t, Config{Policy: allow(t, "allowed.test"), Limits: Limits{Connections: 1}}, "allowed.test", "evil.test")
	for range 3 { // the connection is released each time
		c := r.dial(r.addr)
		fmt.Fprint(c, "GET http://allowed.test/"+upgrade)
		br := bufio.NewReader(c)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		fmt.Fprint(c, "ping")
		if b, err := io.ReadAll(br); err != nil || string(b) != "ping" {
			t.Errorf("%q %v", b, err)
		}
		r.idle()
	}
	if resp := r.raw("GET http://evil.test/" + upgrade); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
}

// TestUpgradeBudget checks that a rule's budget of bytes also applies to a connection that is upgraded from HTTP.
func TestUpgradeBudget(t *testing.T) {
	upgrades(t, math.MaxInt64)
	rule, _ := policy.ParseRule("good.test")
	r := newRig(t, Config{Policy: policy.Policy{}.Allow(rule.Limited(policy.Budget{Bytes: 1000}))}, "good.test")
	c := r.dial(r.addr)
	fmt.Fprint(c, "GET http://good.test/"+upgrade)
	br, block, got := bufio.NewReader(c), make([]byte, 100), 0
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	for range 20 {
		if _, err := c.Write(block); err != nil {
			break
		}
		n, err := io.ReadFull(br, block)
		if got += n; err != nil {
			break
		}
	}
	if got != 500 {
		t.Errorf("%d of the bytes that were sent came back", got)
	}
	r.idle()
	r.proxy.Close()
	for _, rec := range r.records(1) {
		if rec.In != 500 || rec.Out != 500 {
			t.Errorf("%+v", rec)
		}
	}
}

// idle waits until the proxy holds no connection.
func (r *rig) idle() {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		r.proxy.mu.Lock()
		n := r.proxy.conns
		r.proxy.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d connections are held", n)
		}
	}
}

// TestEscapeN25Slow checks that an incomplete head times out and frees its connection.
func TestEscapeN25Slow(t *testing.T) {
	r := newRig(t, Config{Policy: allow(t, "allowed.test"), Limits: Limits{Head: time.Second}}, "allowed.test")
	echo(t, "8.0.0.2:443")
	open := map[string]net.Conn{}
	for name, begin := range map[string]string{"nothing": "", "http": "GET http://allo", "socks": "\x05\x01", "socks target": "\x05\x01\x00\x05\x01\x00\x03\x7f", "connect": "CONNECT allowed.test:443 HTTP/1.1\r\nX: "} {
		open[name] = r.dial(r.addr)
		io.WriteString(open[name], begin)
	}
	for name, way := range r.ways("allowed.test", 443) {
		open["a tunnel: "+name] = way()
		open["a tunnel: "+name].Write([]byte{22, 3, 1})
	}
	for name, c := range open {
		if _, err := io.ReadAll(c); err != nil && os.IsTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.idle()
}

// TestEscapeN25Many checks that connections are limited, and that closing one makes room for another.
func TestEscapeN25Many(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "allowed.test:*"), Limits: Limits{Connections: 20}}, "allowed.test")
	var open []net.Conn
	for range 20 {
		c, resp, _ := r.connect("allowed.test:7")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
		open = append(open, c)
	}
	if _, err := talk(r.addr); err == nil {
		t.Error("one more was served")
	}
	r.blocked("more than 20 connections at once")
	// A connection above the limit waits for a free place, unless the limit has been reached for a long time.
	mine, _ := net.Pipe()
	long := time.Now().Add(-time.Hour)
	if err := r.proxy.holdSoon(mine, &long); err == nil {
		t.Error("there is a place")
	}
	open[0].Close()
	for full := (time.Time{}); r.proxy.holdSoon(mine, &full) != nil; {
		full = time.Time{} // the machine may stall
	}
	r.proxy.release(mine)
	for _, c := range open {
		c.Close()
	}
	r.idle()
	if _, resp, _ := r.connect("allowed.test:7"); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}
