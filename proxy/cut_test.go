package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

// answerOnce serves one connection at a time: it reads a request's head, writes answer, and ends the connection
// with end.
func answerOnce(t *testing.T, l net.Listener, answer string, end func(net.Conn)) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, answer)
			}
			end(c)
		}
	}()
}

// closeRaw closes the connection below TLS, without close_notify.
func closeRaw(c net.Conn) { c.(*tls.Conn).NetConn().Close() }

func closeClean(c net.Conn) { c.Close() }

// cutAnswers has responses whose server closes before or after their end.
var cutAnswers = map[string]struct {
	answer    string
	raw, ends bool // over TLS without close_notify; the response is complete
}{
	"a length":                   {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello", false, false},
	"a length, without notify":   {"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello", true, false},
	"chunks":                     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false, false},
	"a chunk":                    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello", false, false},
	"no length, without notify":  {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", true, false},
	"whole, a length":            {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", false, true},
	"whole, without notify":      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true, true},
	"whole, chunks":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", false, true},
	"whole, no length, notified": {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", false, true},
}

// wholeOver sends a request on c and reports whether a client takes the response for complete. An HTTP/1.1 client
// goes by its length or chunks, an HTTP/1.0 client by its length or the end of the connection.
func wholeOver(c net.Conn, request string) bool {
	io.WriteString(c, request)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.ReadAll(resp.Body)
	return err == nil
}

// TestEscapeN33Cut checks that a truncated response is an error for the client, and never a shorter success.
func TestEscapeN33Cut(t *testing.T) {
	ca := newAuthority(t)
	open := func(t *testing.T) *rig {
		c := Config{Policy: allow(t, "good.test", "vault.test"), Secrets: []Secret{secret(t, "vault.test", "")}, Roots: ca.pool}
		return newRig(t, c, "good.test", "vault.test")
	}
	for name, c := range cutAnswers {
		for _, version := range []string{"1.1", "1.0"} {
			if !c.raw {
				t.Run(name+", plain, HTTP/"+version, func(t *testing.T) {
					r := open(t)
					l, err := net.Listen("tcp", "8.0.0.2:80")
					if err != nil {
						t.Fatal(err)
					}
					answerOnce(t, l, c.answer, closeClean)
					for way, conn := range map[string]net.Conn{"proxy": r.dial(r.addr), "name": r.named("good.test", 80)} {
						if got := wholeOver(conn, "GET http://good.test/ HTTP/"+version+"\r\nHost: good.test\r\n\r\n"); got != c.ends {
							t.Errorf("by %s: taken for whole: %v", way, got)
						}
					}
				})
			}
			t.Run(name+", secret, HTTP/"+version, func(t *testing.T) {
				r := open(t)
				l, err := tls.Listen("tcp", "8.0.0.3:443", ca.server(t, "vault.test"))
				if err != nil {
					t.Fatal(err)
				}
				answerOnce(t, l, c.answer, map[bool]func(net.Conn){true: closeRaw, false: closeClean}[c.raw])
				inside := x509.NewCertPool()
				inside.AppendCertsFromPEM(r.proxy.CA())
				tunnel, _, _ := r.connect("vault.test:443")
				conn := tls.Client(tunnel, &tls.Config{RootCAs: inside, ServerName: "vault.test"})
				if got := wholeOver(conn, "GET / HTTP/"+version+"\r\nHost: vault.test\r\n\r\n"); got != c.ends {
					t.Errorf("taken for whole: %v", got)
				}
			})
		}
	}
}

// TestEscapeN33Spent checks that a response which exceeds the budget is an error too.
func TestEscapeN33Spent(t *testing.T) {
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello", strings.Repeat("x", 1000)) })
	rule, _ := policy.ParseRule("good.test")
	for _, version := range []string{"1.1", "1.0"} {
		r := newRig(t, Config{Policy: policy.Policy{}.Allow(rule.Limited(policy.Budget{Bytes: 500}))}, "good.test")
		if wholeOver(r.dial(r.addr), "GET http://good.test/ HTTP/"+version+"\r\nHost: good.test\r\n\r\n") {
			t.Errorf("HTTP/%s: taken for whole", version)
		}
		r.idle()
		if rec := r.records(1)[0]; rec.Error != "the response was cut short: byte budget is used up" {
			t.Errorf("HTTP/%s: %+v", version, rec)
		}
		want := []Blocked{{Host: "good.test", Port: 80, Reason: `rule "good.test": its budget of 500 bytes is used up`, Times: 1}}
		if got := r.proxy.Blocked(); !slices.Equal(got, want) {
			t.Errorf("HTTP/%s: denied: %+v, want %+v", version, got, want)
		}
	}
}

// TestCutHEAD checks that the response to HEAD is complete without a length, even if its connection has already
// ended.
func TestCutHEAD(t *testing.T) {
	p := newRig(t, Config{}).proxy
	for method, want := range map[string]error{"HEAD": io.EOF, "GET": io.ErrUnexpectedEOF} {
		f := &flow{p: p, q: policy.Query{Method: method}, below: &ending{}}
		f.below.seen.Store(true)
		body := p.web().forward.bodyOf(&http.Response{TLS: &tls.ConnectionState{}, ContentLength: -1, Body: http.NoBody}, f)
		if _, err := body.Read(make([]byte, 1)); err != want || (body.cut == nil) != (want == io.EOF) {
			t.Errorf("%s: %v, %v", method, err, body.cut)
		}
	}
}
