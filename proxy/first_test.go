package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestClassify(t *testing.T) {
	long := strings.Repeat("x", maxLine+1)
	for text, want := range map[string]kind{
		"": undecided, "\x16": undecided, "\x16\x03": tlsKind, "\x16\x03\x01\x00": tlsKind, "\x16\x04": otherKind, "\x16\n": otherKind,
		"\x80": undecided, "\x80\x2e\x01": undecided, "\x80\x2e\x01\x03": tlsKind, "\x80\x2e\x01\x00": otherKind, "\x80\x2e\x02": otherKind, "\xff\xfb\x03": otherKind,

		"GET / HTTP/1.1\r": httpKind, "GET / HTTP/1.1\n": httpKind, "get / http/1.0\r\n": httpKind, "X-Y! * HTTP/1.1\r\n": httpKind,
		"G": undecided, "GET": undecided, "GET ": undecided, "GET / HTTP/1.1": undecided, "\r\n": undecided, "\r\n\r\nGE": undecided,
		"\r\nGET / HTTP/1.1\r\n": httpKind, " GET / HTTP/1.1\r\n": httpKind, "GET\t/\tHTTP/1.1\r\n": httpKind, "GET\v/ HTTP/1.1\r\n": httpKind,
		"GET  /a b  HTTP/1.1 \r\n": httpKind, "GET / HTTP/1.1 x\r\n": httpKind, "GET /\x01 HTTP/1.1\r\n": httpKind, "GET /\x00 HTTP/1.1\r\n": httpKind,
		"CONNECT evil.test:443 HTTP/1.1\r\n": httpKind, "GET http://evil.test/\r\n": httpKind, "GET x://evil.test/ \r\n": httpKind,
		"GET / HTTP/9.9\r\n": httpKind, "GET / HTTP/\r\n": httpKind, "POST /v1 HTTP/1.1\rHost: evil.test\r": httpKind,
		"GET /\rHTTP/1.1\r\n": httpKind, "GET\r/\rHTTP/1.1\n": httpKind, "GET http://evil.test/\rx y\n": httpKind, "GET /\r": undecided, // a bare CR
		"GET\x1c/\x85HTTP/1.1\r\n": httpKind, "\xa0GET\x1d/\x1e\xa0HTTP/1.1\r\n": httpKind, "GET /\x1fHTTP/1.1\n": httpKind, // for Python
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": http2Kind, "PRI * HTTP/2.0": undecided, "PRI * HTTP/1.1\r\n": http2Kind,
		"GET " + long: httpKind, long: httpKind,

		"GET /\r\n":                        otherKind, // HTTP/0.9, which has no host
		"SSH-2.0-OpenSSH_9.2p1 Debian\r\n": otherKind, "\x00\x00\x00\x08\x04\xd2\x16\x2f": otherKind, "*1\r\n$4\r\nPING\r\n": otherKind, "PING\r\n": otherKind,
		"set key 0 0 5\r\n": otherKind, "EHLO x.test\r\n": otherKind, "0032git-upload-pack /repo.git\x00host=x\x00": undecided,
		"0032git-upload-pack /repo.git\x00host=x\x000032want 1234 agent=git/2\n": otherKind, "{\"a\":1}": otherKind, "hello world\n": otherKind,
		"DESCRIBE rtsp://x.test/ RTSP/1.0\r\n": otherKind, "OPTIONS sip:x@x.test SIP/2.0\r\n": otherKind, "AMQP\x00\x00\x09\x01": otherKind,
		"%1POWR ?\r": undecided, strings.Repeat("%1POWR ?\r", maxLine/8): otherKind, "\x85\xa0\x00\x01": otherKind,
		"HTTP/1.1 200 OK\r\n": otherKind, "\r\n\x16\x03\x01": otherKind, "ping": undecided,
	} {
		if got := classify([]byte(text), false); got != want {
			t.Errorf("%.80q: %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]kind{"": otherKind, "ping": otherKind, "GET http://evil.test/": httpKind, "GET / HTTP/1.1": httpKind, "\x16": otherKind, "PRI * HTTP/2.0": http2Kind} {
		if got := classify([]byte(text), true); got != want {
			t.Errorf("%.80q, and the end: %v, want %v", text, got, want)
		}
	}
}

// BenchmarkClassify measures one look at the longest line that is kept. All sandboxes share the proxy's processor time, and
// a client that sends a long line byte by byte has the line classified each time.
func BenchmarkClassify(b *testing.B) {
	line := bytes.Repeat([]byte("~"), maxLine)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		classify(line, false)
	}
}

// TestEscapeN32TLS checks that TLS must be for the name on every port, in any number of pieces, and after a
// HelloRetryRequest.
func TestEscapeN32TLS(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:8443", hello200, "allowed.test", "evil.test")
	r := newRig(t, Config{Policy: allow(t, "allowed.test:8443,2053", "web.test", "tcp://raw.test:8443")}, "allowed.test")
	r.world.at["web.test."], r.world.at["raw.test."] = r.world.at["allowed.test."], r.world.at["allowed.test."]
	for way, open := range r.ways("allowed.test", 8443) {
		for sni, want := range map[string]string{
			"evil.test": `TLS names server "evil.test", not "allowed.test"`,
			"":          `port 8443 needs TLS with a server name: parse name "": not a host name: empty`,
		} {
			err := tls.Client(open(), &tls.Config{ServerName: sni, InsecureSkipVerify: true}).Handshake()
			if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
				t.Errorf("%s, %q: %v", way, sni, err)
			}
			r.blocked(want)
		}
		for _, cut := range []int{1, 7, 1 << 20} {
			c := tls.Client(&pieces{open(), cut}, &tls.Config{RootCAs: ca.pool, ServerName: "allowed.test"})
			if code, body := request(t, c, "GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n"); code != 200 {
				t.Errorf("%s, in pieces of %d: %d %s", way, cut, code, body)
			}
		}
	}
	if _, resp, body := r.connect("web.test:8443"); resp.StatusCode != 403 || !strings.Contains(body, `rule "web.test" names no port, so it covers 80 and 443, not 8443`) {
		t.Error(resp.Status, body)
	}
	raw, _, _ := r.connect("raw.test:8443")
	if err := tls.Client(raw, &tls.Config{ServerName: "evil.test", InsecureSkipVerify: true}).Handshake(); err != nil {
		t.Errorf("by a tcp:// rule: %v", err)
	}
	opensslServer(t, "8.0.0.2:2053")
	at := fmt.Sprintf("%v:2053", r.address("allowed.test"))
	r.serve(at, r.proxy.ServeNamed)
	for second, want := range map[string]string{"allowed.test": "1 retry: /CN=allowed.test", "evil.test": "1 retry: no TLS"} {
		if got := opensslClient(t, at, "allowed.test", second); got != want {
			t.Errorf("then %s: %q, want %q", second, got, want)
		}
	}
}

// pieces writes a few bytes at a time.
type pieces struct {
	net.Conn
	size int
}

func (p *pieces) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = p.Conn.Write(b[n:min(n+p.size, len(b))])
		n += m
	}
	return n, err
}

// TestEscapeN32HTTP checks that each HTTP request must be for the name on every port, however the connection
// begins.
func TestEscapeN32HTTP(t *testing.T) {
	seen := make(chan string, 100)
	serveHTTP(t, "8.0.0.2:8080", func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.Host
		hello200(w, r)
	})
	r := newRig(t, Config{Policy: allow(t, "allowed.test:8080", "evil.test:1")}, "allowed.test")
	const good, evil = "/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n", "/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
	for way, open := range r.ways("allowed.test", 8080) {
		for _, size := range []int{1, 5, 1 << 20} {
			for _, begin := range []string{"GET ", "get ", "POST\t", "\r\nGET ", "\r\n\r\n \nGET "} {
				if begin[0] == '\r' && size < 1<<20 {
					continue // this server answers an empty line with 400 as soon as it receives one
				}
				method := strings.TrimSpace(begin)
				if strings.Contains(begin, "\t") {
					method = "" // net/http refuses it
				}
				for text, want := range map[string]int{begin + good: 200, begin + evil: 403, begin + "http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n": 403} {
					c := &pieces{open(), size}
					io.WriteString(c, text)
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil || resp.StatusCode != want && (method != "" || resp.StatusCode != 400) {
						var b []byte
						if err == nil {
							b, _ = io.ReadAll(resp.Body)
						}
						t.Errorf("%s, in pieces of %d, %q: %v %q %v", way, size, text, resp, b, err)
					}
				}
				if method == "" {
					continue
				}
				select {
				case got := <-seen:
					if got != method+" allowed.test:8080" {
						t.Errorf("the server saw %q", got)
					}
				default:
					t.Fatalf("%s, in pieces of %d, %q: the server saw nothing", way, size, begin)
				}
			}
		}
		// On a kept connection each request is checked.
		c := open()
		br := bufio.NewReader(c)
		for _, q := range []struct {
			text string
			want int
		}{{"GET " + good, 200}, {"GET " + good, 200}, {"GET " + evil, 403}} {
			io.WriteString(c, q.text)
			resp, err := http.ReadResponse(br, nil)
			if err != nil || resp.StatusCode != q.want {
				t.Fatalf("%s, %q: %v %v", way, q.text, resp, err)
			}
			io.Copy(io.Discard, resp.Body)
		}
		<-seen
		<-seen
		for _, text := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET http://evil.test/\r\n", "GET " + strings.Repeat("x", 2*maxLine)} {
			c := open()
			io.WriteString(c, text)
			if b, _ := io.ReadAll(c); strings.HasPrefix(string(b), "HTTP/1.1 2") {
				t.Errorf("%s, %.40q: %s", way, text, b)
			}
		}
	}
	r.blocked(`HTTP names host "evil.test", not "allowed.test"`)
	r.blocked("port 8080: HTTP/2 without TLS: its host cannot be checked; a rule tcp://allowed.test:8080 allows it")
	select {
	case got := <-seen:
		t.Errorf("the server saw %q too", got)
	default:
	}
}

// TestEscapeN32End checks a client that ends its direction within a line. Some servers take that end for the end
// of the line, so the proxy must not forward it.
func TestEscapeN32End(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, Config{Policy: allow(t, "allowed.test:8080")}, "allowed.test")
	c := r.named("allowed.test", 8080)
	io.WriteString(c, "GET http://evil.test/")
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	if _, err := io.ReadFull(up, make([]byte, len("GET http://evil.test/"))); err != nil {
		t.Error(err) // a request needs the end of a line
	}
	c.(*net.TCPConn).CloseWrite()
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && resp.StatusCode/100 == 2 {
		t.Error(resp.Status)
	}
	r.idle()
}

// TestFirstOther checks that other protocols work on such ports, whichever side speaks first and whatever the
// client waits for.
func TestFirstOther(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := UpstreamFrom(environment("HTTPS_PROXY", "http://8.0.0.9:3128"))
	if err != nil {
		t.Fatal(err)
	}
	serveHTTP(t, "8.0.0.9:3128", connectAnything("8.0.0.2:5432"))
	for via, u := range map[string]*Upstream{"": nil, "by the host's proxy: ": u} {
		r := newRig(t, Config{Policy: allow(t, "db.test:5432"), Upstream: u, Generation: min(1, len(via))}, "db.test")
		for way, open := range r.ways("db.test", 5432) {
			for _, script := range [][]string{
				{">220 hello\r\n", "<EHLO x\r\n", ">250 STARTTLS\r\n", "<\x16\x03\x01\x00\x01\x01"}, // not checked
				{"<ping", ">pong", "<ping pong", ">pong"},
				{"<\x00\x00\x00\x08\x04\xd2\x16\x2f", ">S"},
				{"<\r\n", ">? ", "<\r\n", ">? ", "<help\r\n", ">no"},
				{"<\x16", ">?", "<\x00", ">!"},
				{"<0032git-upload-pack /r.git\x00host=x\x00", ">1234", "<0000", ">done"},
				{">greeting", "<\xff\xfb\x01", ">x"},
				{">only the server"},
			} {
				c := open()
				up, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				up.SetDeadline(time.Now().Add(time.Minute))
				for _, line := range script {
					from, to := c, up
					if line[0] == '>' {
						from, to = up, c
					}
					io.WriteString(from, line[1:])
					got := make([]byte, len(line)-1)
					if _, err := io.ReadFull(to, got); err != nil || string(got) != line[1:] {
						t.Fatalf("%s%s, %q: %q %v", via, way, script, got, err)
					}
				}
				c.(*net.TCPConn).CloseWrite()
				if b, err := io.ReadAll(up); err != nil || len(b) > 0 {
					t.Errorf("%s%s, %q: then %q %v", via, way, script, b, err)
				}
				up.Close()
				c.Close()
			}
		}
		r.idle()
	}
}

// connectAnything is a proxy that connects every CONNECT to one address.
func connectAnything(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		up, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer up.Close()
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(up, rw); up.(*net.TCPConn).CloseWrite() }()
		io.Copy(c, up)
	}
}

// TestEscapeN32Greeted checks that neither TLS nor HTTP may follow once the server has spoken first. A server of
// either would wait for the client.
func TestEscapeN32Greeted(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hello := clientHello(t, &tls.Config{ServerName: "db.test"})
	for _, text := range []string{string(hello), "GET / HTTP/1.1\r\nHost: db.test\r\n\r\n"} {
		r := newRig(t, Config{Policy: allow(t, "db.test:5432")}, "db.test")
		c, _, _ := r.connect("db.test:5432")
		up, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(up, "hello")
		io.ReadFull(c, make([]byte, 5))
		io.WriteString(c, text)
		if b, _ := io.ReadAll(up); bytes.Contains([]byte(text), b) && len(b) > 0 {
			t.Errorf("the server got %q", b)
		}
		r.blocked("port 5432: TLS or HTTP after the server had sent data or closed")
		r.idle()
		up.Close()
	}
}

// TestFirstSpare checks that the connection dialled before the first request serves no later one. The server may
// have closed it by then.
func TestFirstSpare(t *testing.T) {
	l, err := net.Listen("tcp", "8.0.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := newRig(t, Config{Policy: allow(t, "allowed.test:8080")}, "allowed.test")
	c, _, _ := r.connect("allowed.test:8080")
	up, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n") // the proxy answers it
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.ContentLength != 0 {
		t.Fatal(resp, err)
	}
	up.Close()
	serve(t, l, hello200)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n")
	if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != 200 {
		t.Error(resp, err)
	}
}

// TestFirstPolicy checks that a new policy also applies to the address of a connection that was dialled before its
// first request.
func TestFirstPolicy(t *testing.T) {
	serveHTTP(t, "8.0.0.2:8080", hello200)
	before := allow(t, "allowed.test:8080")
	r := newRig(t, Config{Policy: before}, "allowed.test")
	c, _, _ := r.connect("allowed.test:8080")
	r.proxy.SetPolicy(before.Deny(allow(t, "8.0.0.0/8").Allowed()...))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 403 {
		t.Fatal(resp, err)
	}
	r.blocked(`allowed.test resolves to 8.0.0.2: denied by rule "8.0.0.0/8"`)
}
