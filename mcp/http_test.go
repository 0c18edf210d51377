package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestHTTPDoor(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	h := s.Handler(HTTPOptions{Token: "secret", Hosts: []string{"sb.example"}})
	for _, c := range []struct {
		host, origin, auth string
		want               int
	}{
		{"127.0.0.1:80", "", "Bearer secret", 200},
		{"[::1]:80", "", "Bearer secret", 200},
		{"SB.example", "https://sb.example", "Bearer secret", 200},
		{"localhost", "http://localhost:3000", "Bearer secret", 200},
		{"evil.test", "", "Bearer secret", 403},
		{"localhost.evil.test", "", "Bearer secret", 403},
		{"localhost", "https://evil.test", "Bearer secret", 403},
		{"localhost", "null", "Bearer secret", 403},
		{"localhost", "", "", 401},
		{"localhost", "", "Bearer secret2", 401},
		{"localhost", "", "bearer secret", 200},
		{"localhost", "", "secret", 401},
		{"localhost", "", "Basic secret", 401},
		{"localhost", "", "Bearer", 401},
	} {
		body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		r := httptest.NewRequest("POST", Path, body)
		r.Host = c.host
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("Host %q, Origin %q, %q: %d, want %d: %s", c.host, c.origin, c.auth, w.Code, c.want, w.Body)
		}
	}
}

// TestHTTPBody checks that a request that is too long is refused from every client.
func TestHTTPBody(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	r := httptest.NewRequest("POST", Path, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+strings.Repeat(" ", maxMessage)))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	w := httptest.NewRecorder()
	s.Handler(HTTPOptions{}).ServeHTTP(w, r)
	if w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%d: %.200s", w.Code, w.Body)
	}
}

// bearer adds the client's token to its requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestHTTPClient(t *testing.T) {
	s, _ := serverFor(t, &desk{})
	srv := httptest.NewServer(s.Handler(HTTPOptions{Token: "x"}))
	defer srv.Close()
	cs, err := sdk.NewClient(&sdk.Implementation{Name: "t"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: srv.URL + Path, HTTPClient: &http.Client{Transport: bearer("x")},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x"}`)})
	if err != nil || r.IsError {
		t.Fatalf("call: %+v, %v", r, err)
	}
}

// TestHTTPSessionEnds checks that a client that ends its session cancels its own calls and no
// others.
func TestHTTPSessionEnds(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	srv := httptest.NewServer(s.Handler(HTTPOptions{}))
	defer srv.Close()
	var sessions []*sdk.ClientSession
	answers := make(chan error, 2)
	for range 2 {
		cs, err := sdk.NewClient(&sdk.Implementation{Name: "t"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: srv.URL + Path},
			&sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
		if err != nil {
			t.Fatal(err)
		}
		defer cs.Close()
		sessions = append(sessions, cs)
		go func() {
			r, err := cs.CallTool(t.Context(), &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x"}`)})
			if err == nil && r.IsError {
				err = fmt.Errorf("%+v", r)
			}
			answers <- err
		}()
		for len(d.seen()) < len(sessions) {
			time.Sleep(time.Millisecond)
		}
	}
	req, err := http.NewRequest("DELETE", srv.URL+Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Mcp-Session-Id", sessions[0].ID())
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("delete: %+v, %v", resp, err)
	}
	if err := <-answers; err == nil {
		t.Error("the call of the session that ended has a result")
	}
	close(d.hold)
	if err := <-answers; err != nil {
		t.Errorf("the other's call: %v", err)
	}
	s.Drain()
	sessions[1].Close() // a ping of its call may be in flight
	open := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.open)
	}
	for range 1000 {
		if open() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("still open: %v", s.open)
}
