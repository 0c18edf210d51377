package mcp

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

// writer is a buffer that a ping may still write to while the test reads it.
type writer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func (*writer) Close() error { return nil }

// TestDrainAtEOF checks that calls in flight are answered when the input ends, however the input is
// formatted.
func TestDrainAtEOF(t *testing.T) {
	call := `{
  "jsonrpc": "2.0",
  "id": 2,
  "method": "tools/call",
  "params": {
    "name": "sandbox_script",
    "arguments": { "command": "x" }
  }
}
`
	for range 20 {
		d := &desk{hold: make(chan struct{})}
		s, _ := serverFor(t, d)
		var out writer
		time.AfterFunc(5*time.Millisecond, func() { close(d.hold) })
		if err := s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(hello+call)), &out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), `"id":2`) || !strings.Contains(out.String(), "output_dir: /o/u-1") {
			t.Fatalf("the call in flight was lost: %q", out.String())
		}
	}
}

// TestDrainOnStop checks that a signal acts like the end of the input: calls in flight are answered and
// nothing more is read.
func TestDrainOnStop(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d)
	r, w := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	var out writer
	done := make(chan error)
	go func() { done <- s.ServeStdio(ctx, r, &out) }()
	io.WriteString(w, hello+`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"x"}}}`+"\n")
	for {
		d.mu.Lock()
		n := len(d.asked)
		d.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	close(d.hold)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"id":"a"`) {
		t.Errorf("not answered: %q", out.String())
	}
}

// TestToldOfWhatWasMade checks that Told is called after the answer with the sandbox's id is written, and
// before the server ends.
func TestToldOfWhatWasMade(t *testing.T) {
	for _, meta := range []string{`{}`, `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`} {
		var out writer
		var told []bool
		d := &desk{told: func() { told = append(told, strings.Contains(out.String(), `"sandbox_id":"s1"`)) }}
		s, _ := serverFor(t, d)
		call := `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"sandbox_create","arguments":{},"_meta":` + meta + `}}`
		if err := s.ServeStdio(t.Context(), io.NopCloser(strings.NewReader(hello+call)), &out); err != nil {
			t.Fatal(err)
		}
		if len(told) != 1 || !told[0] {
			t.Errorf("%s: told %d times, the answer out by then: %v\n%s", meta, len(told), told, out.String())
		}
	}
}

// TestDrainNobodyReads checks that a client that has disconnected does not keep the server running.
func TestDrainNobodyReads(t *testing.T) {
	d := &desk{}
	s, _ := serverFor(t, d)
	r, w := io.Pipe()
	w.CloseWithError(nil)
	out, in := io.Pipe()
	out.Close()
	if err := s.ServeStdio(t.Context(), io.NopCloser(io.MultiReader(strings.NewReader(hello), r)), in); err == nil {
		t.Log("ended without an error")
	}
}
