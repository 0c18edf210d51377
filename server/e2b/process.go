package e2b

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/server"
	"demesne/server/e2b/envd"
	"demesne/session"
)

// processes implements envd's process.Process.
type processes struct{ s *Server }

// headers returns the headers of a call.
func headers(ctx context.Context) http.Header {
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		return info.RequestHeader()
	}
	return http.Header{}
}

// List lists the running processes that clients started.
func (*processes) List(ctx context.Context, _ *envd.ListRequest) (*envd.ListResponse, error) {
	return &envd.ListResponse{Processes: entryOf(ctx).procs.list()}, nil
}

// Start starts a process, and sends its events until it ends or the client leaves. The process then goes on; its time limit,
// which is this call's, still holds.
func (*processes) Start(ctx context.Context, q *envd.StartRequest, to *connect.ServerStream[envd.StartResponse]) error {
	e := entryOf(ctx)
	p, r, err := e.start(ctx, q)
	if err != nil {
		return rpcError(err)
	}
	return p.follow(ctx, r, func(ev *envd.ProcessEvent) error { return to.Send(&envd.StartResponse{Event: ev}) })
}

// Connect sends the events of a running process from now on.
func (*processes) Connect(ctx context.Context, q *envd.ConnectRequest, to *connect.ServerStream[envd.ConnectResponse]) error {
	p, err := entryOf(ctx).procs.find(q.GetProcess(), true)
	if err != nil {
		return rpcError(err)
	}
	return p.follow(ctx, p.listen(), func(ev *envd.ProcessEvent) error { return to.Send(&envd.ConnectResponse{Event: ev}) })
}

// follow sends the start event, then what r receives, and keepalives in between.
func (p *process) follow(ctx context.Context, r *reader, send func(*envd.ProcessEvent) error) error {
	defer r.leave()
	start := &envd.ProcessEvent{Event: &envd.ProcessEvent_Start{Start: &envd.ProcessEvent_StartEvent{Pid: p.info.Pid}}}
	if err := send(start); err != nil {
		return err
	}
	idle, stop := keepalive(ctx)
	defer stop()
	for {
		ev, ok := (*envd.ProcessEvent)(nil), true
		select {
		case <-ctx.Done():
		case <-idle:
			ev = &envd.ProcessEvent{Event: &envd.ProcessEvent_Keepalive{Keepalive: &envd.ProcessEvent_KeepAlive{}}}
		case ev, ok = <-r.events:
		case <-r.gone:
			ok = false
		}
		switch {
		case ctx.Err() != nil: // first: the time limit ends the process too
			return streamEnd(ctx)
		case !ok && p.of.removed():
			panic(http.ErrAbortHandler) // the SDKs tell the end of a sandbox from a cut connection
		case !ok:
			return p.unknown()
		}
		if err := send(ev); err != nil {
			return err
		}
	}
}

// unknown is the error of a stream that has no end of the process: nil if its reader was too slow. The SDKs then ask for the
// sandbox's health, and raise an error that is not one of the command.
func (p *process) unknown() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		return nil
	}
	return connect.NewError(connect.CodeUnavailable, p.lost)
}

// streamEnd is the error of a stream whose client left, or whose time is over.
func streamEnd(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the time limit was reached"))
	}
	return connect.NewError(connect.CodeCanceled, ctx.Err())
}

// keepalive returns a channel that fires at the interval that the client asked for.
func keepalive(ctx context.Context) (<-chan time.Time, func()) {
	n, err := strconv.Atoi(headers(ctx).Get("Keepalive-Ping-Interval"))
	if err != nil || n < 1 || n > 3600 {
		n = 90
	}
	t := time.NewTicker(time.Duration(n) * time.Second)
	return t.C, t.Stop
}

// start starts a process with a first reader.
func (e *entry) start(ctx context.Context, q *envd.StartRequest) (*process, *reader, error) {
	c := q.GetProcess()
	if c.GetCmd() == "" {
		return nil, nil, fmt.Errorf("%w: process.cmd is required", session.ErrInvalid)
	}
	if name, bad := badVariable(c.GetEnvs()); bad {
		return nil, nil, fmt.Errorf("%w: envs: %q is not a variable", session.ErrInvalid, name)
	}
	a, err := e.account(ctx, userOf(headers(ctx)))
	if err != nil {
		return nil, nil, err
	}
	dir, err := e.workdir(ctx, a, c.GetCwd())
	if err != nil {
		return nil, nil, err
	}
	cmd := runner.Command{Argv: append([]string{c.GetCmd()}, c.GetArgs()...), Env: e.environ(a, c.GetEnvs()), Dir: dir, User: a.user}
	if until, ok := ctx.Deadline(); ok {
		cmd.Timeout = max(time.Until(until), time.Millisecond)
	}
	p := &process{of: e, dead: make(chan struct{}), info: &envd.ProcessInfo{Config: c, Tag: q.Tag}}
	begin := p.piped
	if q.GetPty() != nil {
		begin = p.onTerminal
	}
	r := p.listen()
	if err := begin(ctx, e, cmd, q); err != nil {
		return nil, nil, err
	}
	return p, r, nil
}

// workdir returns the directory of a command: absolute, or below the account's home.
func (e *entry) workdir(ctx context.Context, a account, cwd string) (string, error) {
	if cwd == "" {
		return a.home, nil
	}
	if strings.HasPrefix(cwd, "~") {
		cwd = "." + strings.TrimPrefix(cwd, "~")
	}
	if !path.IsAbs(cwd) {
		cwd = path.Join(a.home, cwd)
	}
	err := e.with(ctx, func(sb server.Sandbox) error {
		_, err := sb.Tree(ctx, a.user, "/", fileops.Request{Op: fileops.OpStat, Path: cwd}, nil, nil)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%w: cwd %q: %w", session.ErrInvalid, cwd, err)
	}
	return cwd, nil
}

// launch starts the command. Where the root has no bash, a command for it goes to sh.
func (p *process) launch(ctx context.Context, e *entry, cmd runner.Command) error {
	err := e.with(ctx, func(sb server.Sandbox) (err error) {
		p.run, err = sb.Start(ctx, cmd)
		if errors.Is(err, fs.ErrNotExist) && cmd.Argv[0] == "/bin/bash" {
			cmd.Argv[0] = "/bin/sh"
			p.run, err = sb.Start(ctx, cmd)
		}
		return err
	})
	if err == nil {
		p.info.Pid = uint32(p.run.Number())
		e.procs.add(p)
	}
	return err
}

// piped starts a process with pipes.
func (p *process) piped(ctx context.Context, e *entry, cmd runner.Command, q *envd.StartRequest) (err error) {
	var ours, theirs []*os.File
	pipe := func(ourEnd int) (mine, its *os.File) {
		r, w, perr := os.Pipe()
		if perr != nil {
			err = errors.Join(err, perr)
			return nil, nil
		}
		ends := [2]*os.File{r, w}
		ours, theirs = append(ours, ends[ourEnd]), append(theirs, ends[1-ourEnd])
		return ends[ourEnd], ends[1-ourEnd]
	}
	var in, out, errs *os.File
	if q.Stdin == nil || q.GetStdin() {
		in, cmd.Stdin = pipe(1)
	}
	out, cmd.Stdout = pipe(0)
	errs, cmd.Stderr = pipe(0)
	if err == nil {
		p.in = in
		err = p.launch(ctx, e, cmd)
	}
	for _, f := range theirs {
		f.Close()
	}
	if err != nil {
		for _, f := range ours {
			f.Close()
		}
		return err
	}
	var streams sync.WaitGroup
	streams.Go(func() {
		p.stream(out, func(b []byte) *envd.ProcessEvent_DataEvent {
			return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stdout{Stdout: b}}
		})
	})
	streams.Go(func() {
		p.stream(errs, func(b []byte) *envd.ProcessEvent_DataEvent {
			return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Stderr{Stderr: b}}
		})
	})
	go p.wait([]*os.File{out, errs}, &streams)
	return nil
}

// onTerminal starts a process on a terminal.
func (p *process) onTerminal(ctx context.Context, e *entry, cmd runner.Command, q *envd.StartRequest) error {
	cmd.TTY = sizeOf(q.GetPty())
	if err := p.launch(ctx, e, cmd); err != nil {
		return err
	}
	p.pty = p.run.Terminal()
	if p.pty == nil {
		p.run.Signal(syscall.SIGKILL)
		return io.ErrUnexpectedEOF
	}
	var streams sync.WaitGroup
	streams.Go(func() {
		p.stream(p.pty, func(b []byte) *envd.ProcessEvent_DataEvent {
			return &envd.ProcessEvent_DataEvent{Output: &envd.ProcessEvent_DataEvent_Pty{Pty: b}}
		})
	})
	go p.wait([]*os.File{p.pty}, &streams)
	return nil
}

func sizeOf(p *envd.PTY) *runner.Winsize {
	w := &runner.Winsize{Rows: 24, Cols: 80}
	if s := p.GetSize(); s.GetRows() > 0 && s.GetCols() > 0 {
		w.Rows, w.Cols = uint16(min(s.GetRows(), 4096)), uint16(min(s.GetCols(), 4096))
	}
	return w
}

// Update sets the size of a terminal.
func (*processes) Update(ctx context.Context, q *envd.UpdateRequest) (*envd.UpdateResponse, error) {
	p, err := entryOf(ctx).procs.find(q.GetProcess(), false)
	if err == nil && q.GetPty() != nil {
		err = p.run.Resize(*sizeOf(q.GetPty()))
	}
	return &envd.UpdateResponse{}, rpcError(err)
}

// SendInput writes to the process's stdin or terminal.
func (*processes) SendInput(ctx context.Context, q *envd.SendInputRequest) (*envd.SendInputResponse, error) {
	p, err := entryOf(ctx).procs.find(q.GetProcess(), false)
	if err == nil {
		err = p.write(q.GetInput())
	}
	return &envd.SendInputResponse{}, rpcError(err)
}

// StreamInput is SendInput for a stream of inputs.
func (*processes) StreamInput(ctx context.Context, from *connect.ClientStream[envd.StreamInputRequest]) (*envd.StreamInputResponse, error) {
	var p *process
	for from.Receive() {
		var err error
		switch m := from.Msg(); {
		case m.GetStart() != nil:
			p, err = entryOf(ctx).procs.find(m.GetStart().GetProcess(), false)
		case m.GetData() != nil && p == nil:
			err = fmt.Errorf("%w: the first message must name the process", session.ErrInvalid)
		case m.GetData() != nil:
			err = p.write(m.GetData().GetInput())
		}
		if err != nil {
			return nil, rpcError(err)
		}
	}
	return &envd.StreamInputResponse{}, from.Err()
}

// SendSignal signals the process with its children.
func (*processes) SendSignal(ctx context.Context, q *envd.SendSignalRequest) (*envd.SendSignalResponse, error) {
	p, err := entryOf(ctx).procs.find(q.GetProcess(), false)
	if err == nil {
		switch q.GetSignal() {
		case envd.Signal_SIGNAL_SIGKILL, envd.Signal_SIGNAL_SIGTERM:
			err = p.run.Signal(syscall.Signal(q.GetSignal()))
			if err == nil && q.GetSignal() == envd.Signal_SIGNAL_SIGKILL {
				p.await()
			}
		default:
			err = fmt.Errorf("%w: signal %d: only SIGTERM and SIGKILL", session.ErrInvalid, q.GetSignal())
		}
	}
	return &envd.SendSignalResponse{}, rpcError(err)
}

// CloseStdin ends the process's input.
func (*processes) CloseStdin(ctx context.Context, q *envd.CloseStdinRequest) (*envd.CloseStdinResponse, error) {
	p, err := entryOf(ctx).procs.find(q.GetProcess(), false)
	if err == nil && p.pty != nil {
		err = fmt.Errorf("%w: a terminal has no end of input: send 0x04", session.ErrInvalid)
	}
	if err == nil {
		p.closeStdin()
	}
	return &envd.CloseStdinResponse{}, rpcError(err)
}
