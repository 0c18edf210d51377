package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// post returns a POST request as clients of both eras send it.
func post(ctx context.Context, to, version, session, body string) *http.Request {
	r, _ := http.NewRequestWithContext(ctx, "POST", to+Path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Mcp-Protocol-Version", version)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	if version == severalRounds {
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "sandbox_script")
	}
	return r
}

// open sends a request and returns the lines of its answer.
func open(t *testing.T, r *http.Request) (*http.Response, *bufio.Scanner) {
	t.Helper()
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Body.Close() })
	if a.StatusCode >= 300 {
		text, _ := io.ReadAll(a.Body)
		t.Fatalf("%s: %s", a.Status, text)
	}
	return a, bufio.NewScanner(a.Body)
}

// openSession begins a session of protocol 2025-11-25.
func openSession(t *testing.T, to string) string {
	t.Helper()
	const version = "2025-11-25"
	a, lines := open(t, post(t.Context(), to, version, "", strings.Replace(strings.Split(hello, "\n")[0], "2025-06-18", version, 1)))
	for lines.Scan() {
	}
	id := a.Header.Get("Mcp-Session-Id")
	open(t, post(t.Context(), to, version, id, strings.Split(hello, "\n")[1]))
	return id
}

// TestHTTPModern checks that a client of protocol 2026-07-28 can call tools and list resources over HTTP, and that a
// person at it can be asked.
func TestHTTPModern(t *testing.T) {
	s, _ := serverFor(t, &desk{}, listedTest)
	srv := httptest.NewServer(s.Handler(HTTPOptions{Token: "x"}))
	defer srv.Close()
	var questions int
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			questions++
			return &sdk.ElicitResult{Action: "accept"}, nil
		},
	}).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: srv.URL + Path, HTTPClient: &http.Client{Transport: bearer("x")}},
		&sdk.ClientSessionOptions{ProtocolVersion: severalRounds})
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	text, _, isError := callTool(t, cs, "sandbox_script", `{"command":"x","allowed_domains":["a.test"]}`)
	if isError || !strings.Contains(text, "output_dir: /o/u-1") || questions != 1 {
		t.Errorf("%d questions: %s", questions, text)
	}
	if list, err := cs.ListTools(t.Context(), nil); err != nil || len(list.Tools) == 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestHTTPModernGone checks that a call of protocol 2026-07-28 is cancelled when its connection ends.
func TestHTTPModernGone(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	srv := httptest.NewServer(s.Handler(HTTPOptions{}))
	defer srv.Close()
	ctx, leave := context.WithCancel(t.Context())
	go http.DefaultClient.Do(post(ctx, srv.URL, severalRounds, "", script))
	for len(d.seen()) == 0 {
		time.Sleep(time.Millisecond)
	}
	leave()
	drained := make(chan error)
	go func() { s.Drain(); close(drained) }()
	ended(t, drained)
}

// TestHTTPModernSilence checks that a client that asked for no progress does not wait long for the first byte of the
// answer, and gets further bytes.
func TestHTTPModernSilence(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	srv := httptest.NewServer(s.Handler(HTTPOptions{}))
	defer srv.Close()
	a, lines := open(t, post(t.Context(), srv.URL, severalRounds, "", script))
	if a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%+v", a.Header)
	}
	for comments := 0; comments < 3 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ":") {
			comments++
		} else if lines.Text() != "" {
			t.Errorf("%s", lines.Text())
		}
	}
	close(d.hold)
	var text string
	for lines.Scan() {
		text += lines.Text()
	}
	if !strings.Contains(text, "output_dir: /o/u-1") {
		t.Errorf("%q", text)
	}
}

// TestHTTPReplay checks that a client of an earlier protocol whose connection broke gets what it missed, with the
// result, when it returns with the id of the last event.
func TestHTTPReplay(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	srv := httptest.NewServer(s.Handler(HTTPOptions{}))
	defer srv.Close()
	id := openSession(t, srv.URL)
	ctx, leave := context.WithCancel(t.Context())
	call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"x"},"_meta":{"progressToken":"p"}}}`
	_, lines := open(t, post(ctx, srv.URL, "2025-11-25", id, call))
	last := ""
	for !strings.HasPrefix(last, "id: ") && lines.Scan() {
		last = lines.Text()
	}
	leave()
	for gone := false; !gone; time.Sleep(time.Millisecond) { // the server notices, and goes on
		s.mu.Lock()
		gone = s.attached[id].requests == 0
		s.mu.Unlock()
	}
	var release sync.Once
	for range 2 { // a second time, if that connection breaks too: now the call has ended
		r := post(t.Context(), srv.URL, "2025-11-25", id, "")
		r.Method, r.Body = "GET", nil
		r.Header.Set("Last-Event-ID", strings.TrimPrefix(last, "id: "))
		_, lines = open(t, r)
		var text string
		for lines.Scan() {
			if text += lines.Text(); strings.Contains(lines.Text(), `"progressToken":"p"`) {
				release.Do(func() { close(d.hold) })
			}
		}
		if !strings.Contains(text, `"progressToken":"p"`) || !strings.Contains(text, "output_dir: /o/u-1") {
			t.Errorf("after %q: %q", last, text)
		}
	}
}

// TestHTTPGone checks that the calls of a client of an earlier protocol that does not return in time are cancelled,
// and not before.
func TestHTTPGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{hold: make(chan struct{})}
		s, _ := serverFor(t, d, func(o *Options) { o.Heartbeat = time.Minute })
		h := s.Handler(HTTPOptions{})
		do := func(ctx context.Context, method, session, body string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), post(ctx, "http://localhost", "2025-11-25", session, body)
			r.Method = method
			h.ServeHTTP(w, r)
			return w
		}
		id := do(t.Context(), "POST", "", strings.Replace(hello, "2025-06-18", "2025-11-25", 1)[:strings.Index(hello, "\n")]).Header().Get("Mcp-Session-Id")
		do(t.Context(), "POST", id, strings.Split(hello, "\n")[1])
		ctx, leave := context.WithCancel(t.Context())
		go do(ctx, "POST", id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"x"}}}`, 2))
		time.Sleep(time.Hour) // of the fake clock
		drained := make(chan struct{})
		go func() { s.Drain(); close(drained) }()
		still := func(after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after) // of the fake clock
			select {
			case <-drained:
				if want {
					t.Error("the call is cancelled")
				}
			default:
				if !want {
					t.Error("the call still runs")
				}
			}
		}
		leave()
		still(replayTime-time.Second, true)
		ctx, leave = context.WithCancel(t.Context())
		go do(ctx, "GET", id, "") // the client returns
		still(2*replayTime, true)
		leave()
		still(replayTime+time.Second, false)
		do(t.Context(), "DELETE", id, "")
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.attached) != 0 || len(s.open) != 0 {
			t.Errorf("left: %v, %v", s.attached, s.open)
		}
	})
}

// TestReplayBounds checks that events are kept for a limited time and in limited memory, and that a client never gets
// only some of the events that it missed.
func TestReplayBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newReplay()
		ctx := t.Context()
		after := func(session, stream string, index int) (n int, err error) {
			for _, err := range p.After(ctx, session, stream, index) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}
		check := func(session, stream string, index, want int, fails bool) {
			t.Helper()
			if n, err := after(session, stream, index); n != want || (err != nil) != fails {
				t.Errorf("%s %s after %d: %d events, %v", session, stream, index, n, err)
			}
		}
		p.Open(ctx, "s", "a")
		check("s", "a", -1, 0, false)
		check("s", "b", -1, 0, true)
		p.Append(ctx, "s", "a", []byte("0"))
		time.Sleep(replayTime / 2) // of the fake clock
		p.Append(ctx, "s", "a", []byte("1"))
		check("s", "a", -1, 2, false)
		check("s", "a", 0, 1, false)
		check("s", "a", 1, 0, false)
		time.Sleep(replayTime/2 + time.Second)
		check("s", "a", -1, 0, true)
		check("s", "a", 0, 1, false)
		p.Append(ctx, "s", "a", make([]byte, maxReplay))
		check("s", "a", 0, 0, true)
		check("s", "a", 1, 1, false) // the newest one is kept, whatever its size
		p.Append(ctx, "s", "a", []byte("3"))
		check("s", "a", 1, 0, true)
		check("s", "a", 2, 1, false)
		p.Open(ctx, "t", "a")
		p.Append(ctx, "t", "a", []byte("0"))
		p.SessionClosed(ctx, "s")
		check("s", "a", 2, 0, true)
		check("t", "a", -1, 1, false)
		time.Sleep(3 * replayTime)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.streams) != 0 || p.bytes != 0 || len(p.queue) != 0 {
			t.Errorf("left: %v, %d bytes, %v", p.streams, p.bytes, p.queue)
		}
	})
}
