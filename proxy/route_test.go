package proxy

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	routeToken = "the-sandbox-token-0123456789"
	realToken  = "real-credential-abcdef"
)

// service is a rig with a route to a test server over TLS.
type service struct {
	*rig
	at string // of the route

	mu    sync.Mutex
	seen  []*http.Request
	usage []Usage
}

// newService makes a route to a server with that handler, which speaks HTTP/2 if wanted.
func newService(t testing.TB, two bool, r Route, h http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		s.mu.Unlock()
		h(w, r)
	}))
	server.EnableHTTP2, server.Config.ErrorLog = two, log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	r.Port, r.Token, r.Record = 8088, routeToken, s.record
	if r.To == "" {
		r.To = server.URL + "/base"
	}
	if r.Allow == nil {
		r.Allow = []string{"POST /v1/messages"}
	}
	if r.Header == nil {
		r.Header = map[string]string{"authorization": "Bearer " + realToken, "X-Version": "2026-01-02"}
	}
	s.rig = newRig(t, Config{Routes: []Route{r}, Roots: roots}, "example.com")
	s.at = s.serve("127.0.0.1:0", func(l net.Listener) error { return s.proxy.ServeRoute(l, 8088) })
	return s
}

func (s *service) record(u Usage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage = append(s.usage, u)
	return nil
}

// recorded waits for n records of usage.
func (s *service) recorded(n int) []Usage {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		all := slices.Clone(s.usage)
		s.mu.Unlock()
		if len(all) >= n {
			return all
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%d records of usage, not %d", len(all), n)
		}
	}
}

// call sends a request with the token and returns the response and its body.
func (s *service) call(method, path, body string, header ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://"+s.at+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", routeToken)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Errorf("read the body: %v", err)
	}
	return resp, string(b)
}

// TestRoute checks what the server receives, and what the sandbox gets back, over HTTP/1.1 and HTTP/2.
func TestRoute(t *testing.T) {
	for _, two := range []bool{false, true} {
		s := newService(t, two, Route{Query: []string{"beta", "a"}}, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			w.Header().Set("Set-Cookie", "session=1")
			w.Header().Set("Request-Id", "req")
			fmt.Fprintf(w, "%s %s %s | %s", r.URL, b, r.Header.Get("Authorization"), r.Header.Get("X-Version"))
		})
		resp, body := s.call("POST", "/v1/messages?beta=true&key=other&API_KEY=x&a=b&%61=c&apiKey=x&A=1&session=x&beta", "hello",
			"Authorization", "Basic eDp5", "Cookie", "c=1", "Proxy-Authorization", "p", "Api-Key", "k", "X-Goog-Api-Key", routeToken, "X-Version", "old",
			"Connection", "X-Dropped", "X-Dropped", "1", "X-Kept", "2", "Accept-Encoding", "gzip")
		blank := "Bearer " + strings.Repeat("*", len(realToken))
		if want := "/base/v1/messages?beta=true&a=b&%61=c&beta hello " + strings.Repeat("*", len(blank)) + " | 2026-01-02"; resp.StatusCode != 200 || body != want {
			t.Errorf("%d %q, want %q", resp.StatusCode, body, want)
		}
		if got := resp.Header.Get("X-Echo"); strings.Contains(got, realToken) || got == "" || resp.Header["Set-Cookie"] != nil || resp.Header.Get("Request-Id") != "req" {
			t.Errorf("%v", resp.Header)
		}
		got := s.seen[0]
		want := http.Header{"Authorization": {"Bearer " + realToken}, "X-Version": {"2026-01-02"}, "X-Kept": {"2"}, "Accept-Encoding": {"identity"}, "Content-Length": {"5"}, "User-Agent": {"Go-http-client/1.1"}}
		for name := range got.Header {
			if want[name] == nil {
				t.Errorf("the server got %s: %q", name, got.Header[name])
			}
		}
		for name := range want {
			if got.Header.Get(name) != want.Get(name) {
				t.Errorf("%s: %q, want %q", name, got.Header.Get(name), want.Get(name))
			}
		}
		if got.ProtoMajor == 2 != two {
			t.Errorf("HTTP/2 %t: %s", two, got.Proto)
		}
		rec := s.records(1)[0]
		if rec.Via != "route" || rec.Host != "127.0.0.1" || rec.Port != 8088 || rec.Request != "POST /v1/messages" || rec.Verdict != Allowed || rec.Out != 5 || rec.In != int64(len(body)) || rec.Address == "" {
			t.Errorf("%+v", rec)
		}
		if len(Suggest([]Record{rec})) != 0 || len(Replay([]Record{rec}, allow(t))) != 0 {
			t.Error("a route needs a rule")
		}
	}
}

// TestEscapeN37Requests checks that a route forwards no other request, and none without its token.
func TestEscapeN37Requests(t *testing.T) {
	s := newService(t, false, Route{Allow: []string{"POST /v1/messages", "GET /v1/models/a:b"}}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "served") })
	const token = "X-Api-Key: " + routeToken + "\r\n"
	body := "Content-Length: 0\r\n"
	for text, want := range map[string]int{
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                              200,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: bearer " + routeToken + "\r\n" + body:          200,
		"GET /v1/models/a%3Ab HTTP/1.1\r\nHost: x\r\nX-Goog-Api-Key: " + routeToken + "\r\n":                    200,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + body:                                                      401,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key:\r\n" + body:                                        401,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: " + routeToken + "x\r\n" + body:                    401,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + routeToken + "\r\n" + body:           401,
		"POST /v1/messages?key=" + routeToken + " HTTP/1.1\r\nHost: x\r\n" + body:                               401,
		"GET /v1/messages HTTP/1.1\r\nHost: x\r\n" + token:                                                      403,
		"HEAD /v1/models/a:b HTTP/1.1\r\nHost: x\r\n" + token:                                                   403,
		"POST / HTTP/1.1\r\nHost: x\r\n" + token + body:                                                         403,
		"POST /v1/messages/ HTTP/1.1\r\nHost: x\r\n" + token + body:                                             403,
		"POST //v1/messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                             403,
		"POST /v1/./messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                            403,
		"POST /v1/x/../messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                         403,
		"POST /v1/x/%2e%2e/messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                     403,
		"POST /v1%2fmessages HTTP/1.1\r\nHost: x\r\n" + token + body:                                            403,
		"POST /v1%5cmessages HTTP/1.1\r\nHost: x\r\n" + token + body:                                            403,
		"POST /v1\\messages HTTP/1.1\r\nHost: x\r\n" + token + body:                                             403,
		"POST /v1/messages%00 HTTP/1.1\r\nHost: x\r\n" + token + body:                                           403,
		"POST /v1/messages;x=1 HTTP/1.1\r\nHost: x\r\n" + token + body:                                          403,
		"POST /v1/messages?a;key=1 HTTP/1.1\r\nHost: x\r\n" + token + body:                                      403,
		"POST /v1/messages?%zz=1 HTTP/1.1\r\nHost: x\r\n" + token + body:                                        403,
		"POST http://other.test/v1/messages HTTP/1.1\r\nHost: x\r\n" + token + body:                             403,
		"CONNECT other.test:443 HTTP/1.1\r\nHost: x\r\n" + token:                                                403,
		"CONNECT /v1/messages HTTP/1.1\r\nHost: x\r\n" + token:                                                  403,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" + token + body: 403,
		"POST /v1/messages HTTP/1.1\r\nHost: x\r\n" + token + "Content-Length: 67108865\r\n":                    413,
	} {
		c := s.dial(s.at)
		method, _, _ := strings.Cut(text, " ")
		io.WriteString(c, text+"\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		b, _ := io.ReadAll(resp.Body)
		var refusal struct {
			Type  string
			Error struct{ Type, Message string }
		}
		refused := json.Unmarshal(b, &refusal) == nil && refusal.Type == "error" && strings.HasPrefix(refusal.Error.Message, "blocked by demesne: 127.0.0.1:8088: ")
		if resp.StatusCode != want || want == 200 && string(b) != "served" || want != 200 && !refused && method != "HEAD" {
			t.Errorf("%q: %d %q, want %d", text, resp.StatusCode, b, want)
		}
		c.Close()
	}
	if len(s.seen) != 3 {
		t.Errorf("the server got %d requests", len(s.seen))
	}
	if closed := (&route{closed: true}); closed.authentic(http.Header{"X-Api-Key": {""}}) {
		t.Error("a route without a token accepts an empty one")
	}
}

// TestRouteHeaders checks that replaced headers are used by the next request, and that records do not contain them.
func TestRouteHeaders(t *testing.T) {
	s := newService(t, false, Route{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer renewed-credential" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	if resp, _ := s.call("POST", "/v1/messages", "{}"); resp.StatusCode != 401 {
		t.Errorf("before: %d", resp.StatusCode)
	}
	for range 2 {
		if err := s.proxy.SetRouteHeader(8088, map[string]string{"Authorization": "Bearer renewed-credential"}); err != nil {
			t.Fatal(err)
		}
	}
	if resp, _ := s.call("POST", "/v1/messages", "{}"); resp.StatusCode != 200 {
		t.Errorf("after: %d", resp.StatusCode)
	}
	if s.proxy.SetRouteHeader(1, nil) == nil || s.proxy.SetRouteHeader(8088, map[string]string{"Host": "x"}) == nil {
		t.Error("a wrong header is accepted")
	}
	changed := 0
	for _, rec := range s.records(3) {
		if rec.Verdict == Changed {
			changed++
		}
		if strings.Contains(fmt.Sprintf("%+v", rec), "credential-") || strings.Contains(fmt.Sprintf("%+v", rec), "renewed") {
			t.Errorf("%+v", rec)
		}
	}
	if changed != 1 {
		t.Errorf("%d records of a change", changed)
	}
}

// TestRouteStream checks that each event arrives before the server sends the next one, and that the usage is recorded.
func TestRouteStream(t *testing.T) {
	for _, two := range []bool{false, true} {
		next := make(chan bool)
		s := newService(t, two, Route{Usage: "messages"}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range []string{`{"type":"message_start","message":{"id":"i","model":"m","usage":{"input_tokens":5}}}`,
				`{"type":"x","text":"` + realToken + `"}`, `{"type":"message_delta","usage":{"output_tokens":6}}`, `{"type":"message_stop"}`} {
				io.WriteString(w, "data: "+e+"\n\n")
				http.NewResponseController(w).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		})
		c := s.dial(s.at)
		io.WriteString(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+routeToken+"\r\nContent-Length: 2\r\n\r\n{}")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		for i := range 4 {
			line, err := lines.ReadString('\n')
			if _, err2 := lines.ReadString('\n'); err != nil || err2 != nil || i == 1 && line != `data: {"type":"x","text":"`+strings.Repeat("*", len(realToken))+"\"}\n" {
				t.Fatalf("event %d: %q, %v", i, line, err)
			}
			if i == 3 { // recorded before the response ends
				if u := s.recorded(1)[0]; u.Input != 5 || u.Output != 6 || u.Cut || u.Status != 200 || u.Model != "m" {
					t.Errorf("%+v", u)
				}
			}
			next <- true
		}
		if _, err := lines.ReadByte(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		if n := len(s.recorded(1)); n != 1 {
			t.Errorf("%d records", n)
		}
	}
}

// TestRouteCut checks that a response that the server cuts is cut for the client, and recorded as such; and that a
// client that leaves ends the request to the server.
func TestRouteCut(t *testing.T) {
	gone := make(chan bool, 1)
	s := newService(t, false, Route{Usage: "messages", Query: []string{"cut"}}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, sse(`{"type":"message_start","message":{"usage":{"input_tokens":5}}}`))
		http.NewResponseController(w).Flush()
		if r.URL.RawQuery == "cut" {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
		gone <- true
	})
	req, _ := http.NewRequest("POST", "http://"+s.at+"/v1/messages?cut", strings.NewReader("{}"))
	req.Header.Set("X-Api-Key", routeToken)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a cut response looks complete: %q", b)
	}
	if u := s.recorded(1)[0]; !u.Cut || u.Input != 5 {
		t.Errorf("%+v", u)
	}
	c := s.dial(s.at)
	io.WriteString(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: "+routeToken+"\r\nContent-Length: 2\r\n\r\n{}")
	c.Read(make([]byte, 1))
	c.Close()
	<-gone
	if u := s.recorded(2)[1]; !u.Cut {
		t.Errorf("%+v", u)
	}
}

// TestRouteErrors checks responses of an overloaded server, redirects, and servers that cannot be reached or trusted.
func TestRouteErrors(t *testing.T) {
	s := newService(t, false, Route{Usage: "messages", Query: []string{"529", "moved"}}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.RawQuery {
		case "529":
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(529)
		case "moved":
			http.Redirect(w, r, "https://other.test/", http.StatusFound)
		}
	})
	if resp, _ := s.call("POST", "/v1/messages?529", "{}"); resp.StatusCode != 529 || resp.Header.Get("Retry-After") != "3" {
		t.Errorf("%+v", resp)
	}
	if u := s.recorded(1)[0]; u.Status != 529 || u.RetryAfter != 3*time.Second || u.Missing || u.Malformed {
		t.Errorf("%+v", u)
	}
	if resp, _ := s.call("POST", "/v1/messages?moved", "{}"); resp.StatusCode != http.StatusFound {
		t.Errorf("%+v", resp)
	}
	for name, to := range map[string]string{"none": "https://none.test", "other name": "https://other.test:" + strings.Split(s.proxy.Routes[0].To, ":")[2], "dead": "https://127.0.0.1:1"} {
		s := newService(t, false, Route{To: strings.TrimSuffix(to, "/base")}, nil)
		if resp, body := s.call("POST", "/v1/messages", "{}"); resp.StatusCode != 502 || !strings.Contains(body, "demesne could not reach") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
		if rec := s.records(1)[0]; rec.Error == "" {
			t.Errorf("%s: %+v", name, rec)
		}
	}
}

// TestRouteBodies checks that bodies of any kind and size arrive, and that an endless one does not.
func TestRouteBodies(t *testing.T) {
	s := newService(t, false, Route{}, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	for _, n := range []int{0, 1, rewindable, rewindable + 1, 5 << 20} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", n))
			if chunked {
				body = struct{ io.Reader }{body}
			}
			req, _ := http.NewRequest("POST", "http://"+s.at+"/v1/messages", body)
			req.Header.Set("X-Api-Key", routeToken)
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(resp.Body); string(b) != fmt.Sprintf("%d <nil>", n) {
				t.Errorf("%d bytes, chunked %t: %q", n, chunked, b)
			}
		}
	}
	req, _ := http.NewRequest("POST", "http://"+s.at+"/v1/messages", struct{ io.Reader }{io.LimitReader(endless{}, mostBody+1)})
	req.Header.Set("X-Api-Key", routeToken)
	if resp, err := http.DefaultTransport.RoundTrip(req); err == nil && resp.StatusCode != 413 && resp.StatusCode != 502 {
		t.Errorf("an endless body: %+v", resp)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestRouteMemory checks that without memory a request is still forwarded, and its response only not counted. It also
// checks that all memory is returned.
func TestRouteMemory(t *testing.T) {
	s := newService(t, false, Route{Usage: "messages", Query: []string{"sse", "json"}}, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if w.Header().Set("X-Bytes", fmt.Sprint(n)); r.URL.RawQuery == "sse" {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, sse(`{"type":"message_start","message":{"usage":{"input_tokens":5}}}`, `{"type":"message_stop"}`))
			return
		}
		io.WriteString(w, `{"type":"message","usage":{"input_tokens":5}}`)
	})
	m := &s.proxy.memory
	for i, full := range []bool{false, true} {
		if full {
			m.take(mostMemory - 10)
		}
		for j, kind := range []string{"sse", "json"} {
			resp, _ := s.call("POST", "/v1/messages?"+kind, strings.Repeat("x", 1000))
			if u := s.recorded(2*i + j + 1)[2*i+j]; resp.Header.Get("X-Bytes") != "1000" || u.Malformed != full || (u.Input == 5) == full {
				t.Errorf("%s, full %t: %v, %+v", kind, full, resp.Header, u)
			}
		}
	}
	s.proxy.Close()
	if n := m.used.Load(); n != mostMemory-10 {
		t.Errorf("%d bytes are in use", n)
	}
}

// TestRouteUpstream checks that a route uses the host's own proxy, in clear and by a tunnel, and that the proxy does not
// get the credential of an encrypted request.
func TestRouteUpstream(t *testing.T) {
	ca := newAuthority(t)
	ca.serveHTTPS(t, "8.0.0.2:443", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s got %d bytes", r.Host, len(r.Header.Get("Authorization")))
	}, "api.test")
	asked := corporate(t)
	u, err := UpstreamFrom(environment("https_proxy", "http://me:secret@8.0.0.9:3128", "HTTP_PROXY", "me:secret@8.0.0.9:3128"))
	if err != nil {
		t.Fatal(err)
	}
	header := map[string]string{"Authorization": "Bearer " + realToken}
	var all []Route
	for i, to := range []string{"https://api.test", "http://api.test"} {
		all = append(all, Route{Port: uint16(i + 1), To: to, Allow: []string{"POST /v1/messages"}, Token: routeToken, Header: header})
	}
	r := newRig(t, Config{Routes: all, Roots: ca.pool, Upstream: u})
	for i, want := range []string{fmt.Sprintf("api.test got %d bytes", len("Bearer "+realToken)), "corporate http://api.test/v1/messages"} {
		s := &service{rig: r}
		s.at = r.serve("127.0.0.1:0", func(l net.Listener) error { return r.proxy.ServeRoute(l, uint16(i+1)) })
		if resp, body := s.call("POST", "/v1/messages", "{}"); resp.StatusCode != 200 || body != want || asked.Load() != int32(i+1) {
			t.Errorf("%d %q, want %q; the proxy was asked %d times", resp.StatusCode, body, want, asked.Load())
		}
	}
}

// TestRouteMany checks 20 streams at once.
func TestRouteMany(t *testing.T) {
	var together sync.WaitGroup
	together.Add(20)
	s := newService(t, true, Route{Usage: "chat"}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		http.NewResponseController(w).Flush()
		together.Done()
		together.Wait()
		io.WriteString(w, sse(`{"usage":{"prompt_tokens":1}}`, "[DONE]"))
	})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if resp, body := s.call("POST", "/v1/messages", "{}"); resp.StatusCode != 200 || !strings.HasSuffix(body, "[DONE]\n\n") {
				t.Errorf("%d %q", resp.StatusCode, body)
			}
		})
	}
	all.Wait()
	if n := len(s.recorded(20)); n != 20 {
		t.Errorf("%d records", n)
	}
}
