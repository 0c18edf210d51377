package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// Terminal starts a command on a terminal, which the caller closes. The end of ctx closes it too.
func (s Sandboxes) Terminal(ctx context.Context, sandbox string, o TerminalOptions) (*Terminal, error) {
	q := query{"command": o.Command, "cwd": o.Dir, "term": o.Term}
	for name, n := range map[string]uint16{"rows": o.Rows, "cols": o.Cols} {
		if n > 0 {
			q[name] = strconv.Itoa(int(n))
		}
	}
	c, err := s.dial(ctx, at(sandbox, "/terminal"), q)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	t := &Terminal{c: c}
	t.release = context.AfterFunc(ctx, func() { c.Close() })
	return t, nil
}

// dial opens a WebSocket.
func (c *remote) dial(ctx context.Context, path string, q query) (*socket, error) {
	key, accept := socketKey()
	resp, err := c.send(ctx, http.MethodGet, path, q, nil,
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", key)
	if err != nil {
		return nil, err
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Sec-WebSocket-Accept") != accept {
		resp.Body.Close()
		return nil, errors.New("the server speaks no WebSocket here")
	}
	return newSocket(conn), nil
}

// Terminal is a command on a terminal. Read returns what the command writes, and io.EOF once it has ended. Write types.
// Close ends the command. One goroutine may read while others write.
type Terminal struct {
	c       *socket
	release func() bool

	mu     sync.Mutex
	code   int
	reason string // empty: it has not ended
	err    error  // of Read, once it is not nil

	rest []byte // of the last message; Read's
}

// Read implements [io.Reader].
func (t *Terminal) Read(p []byte) (int, error) {
	for len(t.rest) == 0 {
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// next reads a message.
func (t *Terminal) next() error {
	t.mu.Lock()
	err := t.err
	t.mu.Unlock()
	if err != nil {
		return err
	}
	kind, b, err := t.c.read()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && t.reason != "":
		t.err = io.EOF
	case errors.Is(err, io.EOF):
		t.err = io.ErrUnexpectedEOF
	case err != nil:
		t.err = fmt.Errorf("read terminal: %w", err)
	case kind == frameBinary:
		t.rest = b
	default:
		var e TerminalEvent
		if err := json.Unmarshal(b, &e); err != nil {
			t.err = fmt.Errorf("read terminal: decode event: %w", err)
		}
		switch e.Type {
		case "exit":
			t.code, t.reason, t.err = e.ExitCode, e.Reason, io.EOF
		case "error":
			t.err = fmt.Errorf("read terminal: %s", e.Message)
		}
	}
	return t.err
}

// maxInput bounds one message of input, in bytes.
const maxInput = 64 << 10

// Write implements [io.Writer].
func (t *Terminal) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), maxInput)]
		if err := t.c.write(frameBinary, part); err != nil {
			return n, fmt.Errorf("write terminal: %w", err)
		}
		n, p = n+len(part), p[len(part):]
	}
	return n, nil
}

// Resize sets the size, and tells the command.
func (t *Terminal) Resize(rows, cols uint16) error {
	b, err := json.Marshal(TerminalRequest{Type: "resize", Rows: rows, Cols: cols})
	if err == nil {
		err = t.c.write(frameText, b)
	}
	if err != nil {
		return fmt.Errorf("resize terminal: %w", err)
	}
	return nil
}

// Exit returns the exit code and the reason of the end, as in a [Result]. They are valid once Read has returned io.EOF;
// before that, reason is empty.
func (t *Terminal) Exit() (code int, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.code, t.reason
}

// Close implements [io.Closer]. It may be repeated.
func (t *Terminal) Close() error {
	t.release()
	return t.c.Close()
}
