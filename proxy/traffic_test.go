package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"demesne/proxy/policy"
)

// TestHTTP2 checks that the proxy leaves the content of a tunnel to its two ends.
func TestHTTP2(t *testing.T) {
	ca := newAuthority(t)
	l, err := net.Listen("tcp", "8.0.0.2:443")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto, " ", n)
	}))
	s.Listener.Close()
	s.Listener, s.TLS, s.EnableHTTP2 = l, ca.server(t, "good.test"), true
	s.StartTLS()
	defer s.Close()
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	c := r.client(ca)
	c.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	const size = 32 << 20 // an upload larger than any buffer
	resp, err := c.Post("https://good.test/", "", io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprint("HTTP/2.0 ", size) {
		t.Errorf("%s", b)
	}
}

// TestEvents checks that an event stream over plain HTTP is forwarded without delay.
func TestEvents(t *testing.T) {
	next := make(chan bool)
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n", i)
			http.NewResponseController(w).Flush()
			<-next // sent when the event has arrived
		}
	})
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	resp, err := r.client(nil).Get("http://good.test/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) {
			t.Fatalf("%d: %q %v", i, lines.Text(), lines.Err())
		}
		next <- true
	}
}

// TestHalfClosed checks that an end in one direction is forwarded while the other direction continues, and that
// resets are forwarded.
func TestHalfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:7")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test")
	c, _, _ := r.connect("good.test:7")
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "question")
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(up); err != nil || string(b) != "question" {
		t.Fatalf("%q %v", b, err)
	}
	fmt.Fprint(up, "answer")
	up.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "answer" {
		t.Errorf("%q %v", b, err)
	}
	c, _, _ = r.connect("good.test:7")
	if up, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	reset(c)
	up.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := up.Read(make([]byte, 1)); err == nil || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("a disconnected client: %v", err)
	}
	r.idle()
}

// TestPolicyUnderLoad checks that one policy or the other decides on each connection, and that swapping them
// hangs or leaks nothing.
func TestPolicyUnderLoad(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{}, "good.test")
	policies := []policy.Policy{{}, allow(t, "good.test:*")}
	var done atomic.Bool
	var swaps, wg sync.WaitGroup
	swaps.Go(func() {
		for i := 0; !done.Load(); i++ {
			r.proxy.SetPolicy(policies[i%2])
		}
	})
	var got [2]atomic.Int32
	for range 8 {
		wg.Go(func() {
			for range 50 {
				c, resp, _ := r.connect("good.test:7")
				switch resp.StatusCode {
				case 200:
					got[1].Add(1)
				case 403:
					got[0].Add(1)
				default:
					t.Error(resp.Status)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	done.Store(true)
	swaps.Wait()
	if n := got[0].Load() + got[1].Load(); n != 400 {
		t.Errorf("%d answers", n)
	}
	r.idle()
}

// TestEscapeN21Names checks that a name's fake address in one sandbox means nothing in another.
func TestEscapeN21Names(t *testing.T) {
	echo(t, "8.0.0.2:7")
	one, two := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test"), newRig(t, Config{Policy: allow(t, "other.test:*")}, "other.test")
	one.named("good.test", 7)
	if name, ok := two.proxy.names.name(one.address("good.test")); ok {
		t.Errorf("it is %v there", name)
	}
	if _, resp, _ := two.connect("good.test:7"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
}

// TestHostileServer checks that malformed responses end and leave no connection behind.
func TestHostileServer(t *testing.T) {
	answers := make(chan string, 1)
	l, err := net.Listen("tcp", "8.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			io.WriteString(c, <-answers)
			c.Close()
		}
	}()
	r := newRig(t, Config{Policy: allow(t, "good.test"), Limits: Limits{Connections: 1}}, "good.test")
	for _, a := range []string{
		"", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 512<<10) + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n", // not requested
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
	} {
		answers <- a
		c := r.dial(r.addr)
		fmt.Fprint(c, "GET http://good.test/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.60q: %v", a, err)
		}
		r.idle()
	}
}

// TestUpstreamTLS checks an upstream proxy over TLS, whose certificate the host must trust.
func TestUpstreamTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.9:443", hello200, "proxy.test")
	u, err := UpstreamFrom(environment("HTTPS_PROXY", "https://8.0.0.9"))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Policy: allow(t, "good.test:*"), Upstream: u})
	if _, resp, body := r.connect("good.test:7"); resp.StatusCode != 502 || !strings.Contains(body, "x509") {
		t.Error(resp.Status, body)
	}
	h := &hop{&url.URL{Scheme: "https", Host: "8.0.0.9"}}
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	c, err := tls.Dial("tcp", h.address(), &tls.Config{RootCAs: pool, ServerName: "proxy.test"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := h.tunnel(c, "good.test:7"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// TestUpstreamSilent checks that an upstream proxy which never answers hits the dial timeout. A malformed answer
// fails at once.
func TestUpstreamSilent(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.9:3128")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, _ := UpstreamFrom(environment("HTTPS_PROXY", "http://8.0.0.9:3128"))
	r := newRig(t, Config{Policy: allow(t, "good.test:*"), Upstream: u, Limits: Limits{Dial: 500 * time.Millisecond}})
	if _, resp, body := r.connect("good.test:7"); resp.StatusCode != 502 || !strings.Contains(body, "ask upstream proxy") {
		t.Error(resp.Status, body)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 100<<10)+"\r\n\r\n")
			c.Close()
		}
	}()
	r.proxy.Limits.Dial = time.Minute
	if _, resp, body := r.connect("good.test:7"); resp.StatusCode != 502 {
		t.Error(resp.Status, body)
	}
}

// TestLostClient checks that a client which disconnects before the answer leaves nothing behind.
func TestLostClient(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:7")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test")
	for _, text := range []string{"CONNECT good.test:7 HTTP/1.1\r\n\r\n", "\x05\x01\x00\x05\x01\x00\x03\x09good.test\x00\x07"} {
		for range 20 {
			c := r.dial(r.addr)
			io.WriteString(c, text)
			reset(c)
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	r.idle()
}

// TestCloseSettles checks that Close returns after every answer given to clients is in the log.
func TestCloseSettles(t *testing.T) {
	for range 20 {
		r := newRig(t, Config{})
		for i := range 5 {
			name := fmt.Sprintf("n%d.test", i)
			if code, _, err := get(t, r.client(nil), "http://"+name+"/"); err != nil || code != 403 {
				t.Fatal(code, err)
			}
		}
		r.proxy.Close()
		if n := len(r.proxy.Blocked()); n != 5 || r.proxy.flows.Load() != 0 {
			t.Fatalf("%d of 5 denials, %d flows are open", n, r.proxy.flows.Load())
		}
	}
}

// TestHalfClosedRequest checks that a client that ends its direction after a request (nc -N) gets the answer, and that
// Close ends the request of such a client.
func TestHalfClosedRequest(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(time.Minute))
	r := newRig(t, Config{Policy: allow(t, "good.test")}, "good.test")
	ask := func() (c, up net.Conn) {
		c = r.dial(r.addr)
		fmt.Fprint(c, "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		if up, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		if _, err := http.ReadRequest(bufio.NewReader(up)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // for the end to be noticed
		return c, up
	}
	c, up := ask()
	fmt.Fprint(up, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer")
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") || !strings.HasSuffix(string(b), "answer") {
		t.Errorf("%q %v", b, err)
	}
	up.Close()
	_, up = ask()
	defer up.Close()
	r.proxy.Close()
	up.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := up.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the request has not ended: %d, %v", n, err)
	}
}

// TestCloseEndsHalfTunnels checks that Close ends a tunnel whose client has ended its direction and whose server
// has not.
func TestCloseEndsHalfTunnels(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	r := newRig(t, Config{Policy: allow(t, fmt.Sprintf("tcp://db.test:%d", port))}, "db.test")
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT db.test:%d HTTP/1.1\r\n\r\n", port)
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	c.(*net.TCPConn).CloseWrite()
	up.Read(make([]byte, 1)) // the end has arrived
	r.proxy.Close()
	if n := r.proxy.flows.Load(); n != 0 {
		t.Errorf("%d flows are open", n)
	}
	c.Close()
}

// TestConnectHead checks that only a complete CONNECT avoids the HTTP server.
func TestConnectHead(t *testing.T) {
	long := strings.Repeat("x", headSize)
	for _, c := range []struct {
		in, rest, target string
	}{
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", "", "a.test:443"},
		{"CONNECT a.test:443 HTTP/1.0\r\n\r\n", "", "a.test:443"},
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\r\n", "\x16\x03\x01", "a.test:443"},
		{"CONNECT A.test. HTTP/1.1\r\nHost: x\r\n\r\n", "", "A.test."}, // a name without a port is rejected later, as everywhere
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n", "", ""},
		{"CONNECT a.test:443 HTTP/2.0\r\n\r\n", "", ""},
		{"CONNECT a.test:443\r\n\r\n", "", ""},
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "hello", ""},
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n\r\n", ""},
		{"CONNECT a.test:443 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", "", ""},
		{"CONNECT a.test:443 HTTP/1.1\r\nHo st: x\r\n\r\n", "", ""},
		{"connect a.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", "", ""},
		{"GET http://a.test/ HTTP/1.1\r\nHost: x\r\n\r\n", "", ""},
		{"CONNECT a.test:443 HTTP/1.1\r\nX: " + long + "\r\n\r\n", "", ""},
		{"\x16", "", ""},
	} {
		b := []byte(c.in + c.rest)
		n, target := connectHead(b[:min(len(b), headSize)])
		want := len(c.in)
		if c.target == "" {
			want = 0
		}
		if n != want || target != c.target {
			t.Errorf("%.80q: %d bytes for %q, want %d for %q", c.in, n, target, want, c.target)
		}
	}
}

// TestConnectPieces checks that a CONNECT gets the same answer in one packet or in pieces.
func TestConnectPieces(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "good.test:*")}, "good.test")
	for target, want := range map[string]string{"good.test:7": "200", "bad.test:7": "403", "good.test:9": "502", "good.test": "403"} {
		for _, size := range []int{7, 1 << 10} {
			c := r.dial(r.addr)
			defer c.Close()
			text := "CONNECT " + target + " HTTP/1.1\r\nHost: x\r\n\r\n"
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				io.WriteString(c, rest[:min(size, len(rest))])
				if size < len(text) {
					time.Sleep(time.Millisecond) // each part in a packet of its own
				}
			}
			io.WriteString(c, "hello")
			resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: "CONNECT"})
			if err != nil || !strings.HasPrefix(resp.Status, want) {
				t.Errorf("%s in pieces of %d: %v %v, want %s", target, size, resp, err, want)
			}
		}
	}
}
