package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"demesne/session"
)

// waiting is a backend whose scripts wait for the end of their call.
type waiting struct {
	Service
	began, ended chan bool
}

func (w waiting) Script(ctx context.Context, _ session.Request, _ session.Callbacks) (*session.RunResult, error) {
	w.began <- true
	<-ctx.Done()
	w.ended <- true
	return nil, ctx.Err()
}

// TestHTTPPlain checks that a client that accepts no event stream needs no session and gets JSON, and that its call ends
// with its connection.
func TestHTTPPlain(t *testing.T) {
	e := waiting{began: make(chan bool, 1), ended: make(chan bool, 1)}
	web := httptest.NewServer(New(e, Options{Version: "1", Images: []string{"host"}, Image: "host", Egress: []string{"none", "package-managers"}, Policy: bounded(session.Bounds{})}).Endpoint())
	defer web.Close()
	post := func(ctx context.Context, body string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "POST", web.URL, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		return http.DefaultClient.Do(r)
	}
	for _, c := range []struct{ body, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`, `"protocolVersion":"2025-11-25"`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`, `"sandbox_script"`},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"none","arguments":{}}}`, `"error":{"code":-32602`},
		{`nonsense`, `"id":null,"error":{"code":-32700`},
		{``, `"id":null,"error":{"code":-32700`},
	} {
		resp, err := post(context.Background(), c.body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(string(text), c.want) {
			t.Errorf("%s: %v %.200s", c.body, resp.Header, text)
		}
	}
	ctx, leave := context.WithCancel(context.Background())
	go post(ctx, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"sleep 99"}}}`)
	<-e.began
	leave()
	select {
	case <-e.ended:
	case <-time.After(time.Minute):
		t.Error("the call goes on without its client")
	}
}
