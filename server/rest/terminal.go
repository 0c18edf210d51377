package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"demesne/client"
	"demesne/runner"
	"demesne/server"
)

// terminalInput is the request of a terminal.
type terminalInput struct {
	Named
	Command string `query:"command" maxLength:"65536" doc:"Text for /bin/sh -c; empty: a login shell"`
	Dir     string `query:"cwd" maxLength:"4096" doc:"Empty: /workspace, or the image's"`
	Term    string `query:"term" maxLength:"64" pattern:"^[A-Za-z0-9._+-]*$" doc:"Empty: xterm-256color"`
	Rows    uint16 `query:"rows" maximum:"4096" doc:"0: 24"`
	Cols    uint16 `query:"cols" maximum:"4096" doc:"0: 80"`
}

func (s *Server) terminalRoutes() {
	op := operation("open-terminal", http.MethodGet, "/sandboxes/{id}/terminal", "Commands", "Open a terminal by WebSocket")
	op.Description = "Binary messages are the terminal's input and output. Text messages are JSON: the client sends TerminalRequest, " +
		"the server TerminalEvent. The server closes the connection after an exit."
	op.Responses = map[string]*huma.Response{"101": {Description: "Switching Protocols"}}
	huma.Register(s.api, op, s.terminal)
	r := s.api.OpenAPI().Components.Schemas
	schemaOf[client.TerminalRequest](r)
	schemaOf[client.TerminalEvent](r)
}

// Of a terminal's connection.
const (
	maxMessage = 1 << 20
	hangUpTime = 2 * time.Second // from SIGHUP to SIGKILL
)

func (s *Server) terminal(ctx context.Context, in *terminalInput) (*huma.StreamResponse, error) {
	info, err := s.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	sb, err := s.service(ctx).Open(ctx, info.ID)
	if err != nil {
		return nil, failed(err)
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // it has answered
		}
		defer c.CloseNow()
		c.SetReadLimit(maxMessage)
		p, err := startTerminal(ctx, sb, in)
		if err != nil {
			tell(ctx, c, client.TerminalEvent{Type: "error", Message: s.shown(ctx, err).Message})
			c.Close(websocket.StatusInternalError, "not started")
			return
		}
		if most := s.service(ctx).Grants(ctx, runner.Limits{}, 0).Timeout; most > 0 {
			tell(ctx, c, client.TerminalEvent{Type: "note", Message: fmt.Sprintf("the operator's maximum ends this program after %v", most)})
		}
		(&terminal{c: c, p: p, pty: p.Terminal()}).carry(r.Context())
	}}, nil
}

// startTerminal starts a command, or the first shell that the sandbox has.
func startTerminal(ctx context.Context, sb server.Sandbox, in *terminalInput) (server.Process, error) {
	cmd := runner.Command{
		Argv: []string{"/bin/bash", "-l"}, Else: [][]string{{"/bin/sh", "-l"}}, Dir: in.Dir, Env: []string{"TERM=" + cmp.Or(in.Term, "xterm-256color")},
		TTY: &runner.Winsize{Rows: cmp.Or(in.Rows, 24), Cols: cmp.Or(in.Cols, 80)},
	}
	if in.Command != "" {
		cmd.Argv, cmd.Else = []string{"/bin/sh", "-c", in.Command}, nil
	}
	p, err := sb.Start(ctx, cmd)
	if err == nil && p.Terminal() == nil {
		p.Signal(syscall.SIGKILL)
		err = errors.New("the sandbox made no terminal")
	}
	return p, err
}

// terminal carries a command's terminal over a connection.
type terminal struct {
	c   *websocket.Conn
	p   server.Process
	pty *os.File
}

func (t *terminal) carry(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	var res *runner.Result
	var err error
	go func() {
		res, err = t.p.Wait(context.WithoutCancel(ctx))
		close(ended)
	}()
	output := make(chan struct{})
	go func() {
		defer close(output)
		t.output(ctx)
	}()
	go func() {
		t.input(ctx)
		cancel()
	}()
	select {
	case <-ended:
		select { // what it wrote last; its children may hold the terminal
		case <-output:
		case <-time.After(time.Second):
		}
		tell(ctx, t.c, ending(res, err))
		t.c.Close(websocket.StatusNormalClosure, "")
	case <-ctx.Done():
		t.hangUp(ended)
	}
	t.pty.Close()
}

// hangUp ends the command of a client that left.
func (t *terminal) hangUp(ended <-chan struct{}) {
	t.p.Signal(syscall.SIGHUP)
	select {
	case <-ended:
	case <-time.After(hangUpTime):
		t.p.Signal(syscall.SIGKILL)
	}
}

func ending(res *runner.Result, err error) client.TerminalEvent {
	if err != nil || res == nil {
		return client.TerminalEvent{Type: "error", Message: "the command was lost"}
	}
	return client.TerminalEvent{Type: "exit", ExitCode: res.ExitCode, Reason: string(res.Reason), Spent: client.Spent{CPU: res.CPU, MaxRSS: res.MaxRSS}}
}

// output sends what the terminal shows.
func (t *terminal) output(ctx context.Context) {
	buf := make([]byte, 32<<10)
	from := t.p.Shown(t.pty)
	defer from.Close()
	for {
		n, err := from.Read(buf)
		if n > 0 {
			late, cancel := context.WithTimeout(ctx, server.StallTime)
			werr := t.c.Write(late, websocket.MessageBinary, buf[:n])
			cancel()
			if werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// input passes on what the client types, until it leaves.
func (t *terminal) input(ctx context.Context) {
	for {
		kind, b, err := t.c.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := t.pty.Write(b); err != nil && !errors.Is(err, fs.ErrClosed) && !errors.Is(err, syscall.EIO) {
				return
			}
			continue
		}
		var q client.TerminalRequest
		if json.Unmarshal(b, &q) != nil {
			tell(ctx, t.c, client.TerminalEvent{Type: "error", Message: "not a message"})
			continue
		}
		t.request(ctx, &q)
	}
}

func (t *terminal) request(ctx context.Context, q *client.TerminalRequest) {
	switch {
	case q.Type == "input":
		io.WriteString(t.pty, q.Data)
	case q.Type == "resize" && q.Rows > 0 && q.Cols > 0:
		t.p.Resize(runner.Winsize{Rows: min(q.Rows, 4096), Cols: min(q.Cols, 4096)})
	case q.Type == "ping":
		tell(ctx, t.c, client.TerminalEvent{Type: "pong"})
	default:
		tell(ctx, t.c, client.TerminalEvent{Type: "error", Message: "not a message"})
	}
}

func tell(ctx context.Context, c *websocket.Conn, e client.TerminalEvent) {
	ctx, cancel := context.WithTimeout(ctx, server.StallTime)
	defer cancel()
	if b, err := json.Marshal(e); err == nil {
		c.Write(ctx, websocket.MessageText, b)
	}
}
