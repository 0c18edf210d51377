package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"demesne/internal/cmdline"
	"demesne/mcp"
	"demesne/mcp/install"
	"demesne/runner"
	"demesne/session"
	"demesne/session/operator"
)

// slow is a backend whose scripts take a given time.
type slow struct {
	mcp.Service
	takes time.Duration
}

func (s slow) Script(ctx context.Context, _ session.Request, _ session.Callbacks) (*session.RunResult, error) {
	select {
	case <-time.After(s.takes):
		return &session.RunResult{Stdout: session.Tail{Text: "late", Bytes: 4}, Result: &runner.Result{Reason: runner.Exited}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipes is an in-memory listener: waiting on it follows the fake clock of a synctest bubble.
type pipes struct {
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newPipes() *pipes {
	p := &pipes{conns: make(chan net.Conn)}
	p.closed, p.close = context.WithCancel(context.Background())
	return p
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.close(); return nil }
func (*pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.conns <- far
	return near, nil
}

// TestHTTPPatience checks, on a fake clock, that no timeout of the server ends a call of 48 hours whose client
// sends nothing meanwhile.
func TestHTTPPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounts, err := mcp.NewMounts(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		policy, err := operator.New(session.Bounds{MaxTimeout: runner.Longest}, operator.Caller{Model: true})
		if err != nil {
			t.Fatal(err)
		}
		s := mcp.New(slow{takes: 48*time.Hour - time.Second}, mcp.Options{Version: "1", Mounts: mounts, Images: []string{"host"}, Image: "host", Egress: []string{"none", "package-managers"}, Heartbeat: time.Hour, Policy: policy})
		ctx, end := context.WithCancel(context.Background())
		l, served := newPipes(), make(chan error, 1)
		go func() { served <- serveHTTP(ctx, s, l, mcp.HTTPOptions{}) }()

		web := &http.Transport{DialContext: l.dial}
		session := ""
		do := func(method, message string) string {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+mcp.Path, strings.NewReader(message))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set("Mcp-Session-Id", session)
			a, err := web.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, err := io.ReadAll(a.Body)
			if err != nil {
				t.Error(err)
			}
			session = cmp.Or(session, a.Header.Get("Mcp-Session-Id"))
			return string(text)
		}
		do("POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		began := time.Now()
		text := do("POST", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"x"}}}`)
		if took := time.Since(began); took < 47*time.Hour || !strings.Contains(text, "late") {
			t.Errorf("after %v: %.300q", took, text)
		}
		do(http.MethodDelete, "") // or the session would outlive the test
		web.CloseIdleConnections()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestUsage checks that a wrong command line is a usage error, also where its letters begin with -h.
func TestUsage(t *testing.T) {
	for _, line := range []string{"-http 127.0.0.1:0", "-hx", "--nosuch", "operand", "--host a"} {
		var errs strings.Builder
		if code := run(strings.Fields(line), nil, nil, &errs); code != exitUsage || !strings.HasPrefix(errs.String(), "demesne-mcp: ") {
			t.Errorf("%s: exit %d, %s", line, code, errs.String())
		}
	}
}

func TestToken(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"secret\n": "secret", " s \nmore": "s", "": "", "\nlate": ""} {
		path := filepath.Join(dir, "t")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := token(path); got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q %v", text, got, err)
		}
	}
	t.Setenv(varToken, "of the environment")
	if got, err := token(""); err != nil || got != "of the environment" {
		t.Errorf("%q %v", got, err)
	}
}

func TestListen(t *testing.T) {
	for _, c := range []struct {
		addr    string
		guarded bool
		ok      bool
	}{
		{"127.0.0.1:0", false, true}, {"[::1]:0", false, true}, {"0.0.0.0:0", false, false}, {"0.0.0.0:0", true, true},
		{"nonsense", true, false}, {"unix:" + t.TempDir() + "/s", false, true}, {"unix:/nonexistent/s", true, false},
	} {
		l, err := listen(c.addr, c.guarded)
		if (err == nil) != c.ok {
			t.Errorf("%s, guarded %v: %v", c.addr, c.guarded, err)
		}
		if err == nil {
			l.Close()
		}
	}
}

func TestParse(t *testing.T) {
	given := func(args ...string) (*install.ServerOptions, error) {
		o := &install.ServerOptions{}
		return o, parse(install.ServerCommand(o), o, args)
	}
	o, err := given("--http", "127.0.0.1:1", "--host", "a", "--host=b", "--token-file", "f")
	if err != nil || o.HTTP != "127.0.0.1:1" || strings.Join(o.Hosts, " ") != "a b" || o.TokenFile != "f" {
		t.Errorf("%+v %v", o, err)
	}
	for _, args := range [][]string{{"x"}, {"--bad"}, {"--host", "a"}, {"--http"}} {
		if _, err := given(args...); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
	if _, err := given("-h"); !errors.Is(err, cmdline.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
	if _, err := given("--version"); !errors.Is(err, cmdline.ErrVersion) {
		t.Errorf("--version: %v", err)
	}
}
