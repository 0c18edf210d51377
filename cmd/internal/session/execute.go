package session

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
)

// longest bounds the time of a command without a timeout.
const longest = 48 * time.Hour

// outside is the default working directory.
const outside = "/out"

// beginning starts a command, and may first make its sandbox. On an error it leaves nothing behind. It is not
// cancelable: a partial start would leave a sandbox without a known id.
type beginning func(runner.Command) (*client.Sandbox, *client.Process, error)

// in returns a beginning in an existing sandbox.
func in(ctx context.Context, box *client.Sandbox) beginning {
	return func(cmd runner.Command) (*client.Sandbox, *client.Process, error) {
		p, err := box.Exec(ctx, cmd)
		return box, p, err
	}
}

// execute runs a request's command, started by begin, and collects its output. If ctx ends first, it ends the
// command and returns the cause.
func (d *Service) execute(ctx context.Context, begin beginning, r backend.Request, w backend.Callbacks, s streams) (*runner.Result, error) {
	cmd := runner.Command{
		Argv: []string{"/bin/sh", "-c", r.Command}, Env: r.Env, Dir: r.Dir, User: r.Spec.User, Timeout: r.Timeout,
		Account: true,
	}
	if cmd.Dir == "" {
		cmd.Dir = outside
	}
	if cmd.Timeout <= 0 {
		cmd.Timeout = longest
	}
	alone := r.Spec.Lifetime == runner.OneShot
	box, p, feed, err := start(begin, cmd, r.Stdin, s)
	if err != nil {
		return nil, err
	}
	defer d.asks.listen(box.ID, w.Ask)()
	if w.Output != nil {
		w.Output(s.out.glimpse)
	}
	defer context.AfterFunc(ctx, func() { end(box, p, alone) })()
	res, err := p.Wait(context.Background())
	if err != nil {
		end(box, p, alone) // or its output might never end
	}
	s.out.finish(alone)
	s.errs.finish(alone)
	feed.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return res, err
}

// end kills a command with everything it started. If the command is alone, it removes the sandbox.
func end(box *client.Sandbox, p *client.Process, alone bool) {
	if alone {
		stop(box)
		return
	}
	p.Signal(syscall.SIGKILL)
}

// start starts cmd with pipes; closing feed closes the command's stdin.
func start(begin beginning, cmd runner.Command, stdin string, s streams) (box *client.Sandbox, p *client.Process, feed io.Closer, err error) {
	var in *os.File
	if stdin != "" {
		if cmd.Stdin, in, err = os.Pipe(); err != nil {
			return nil, nil, nil, err
		}
	}
	cmd.Stdout, err = s.out.open()
	if err == nil {
		cmd.Stderr, err = s.errs.open()
	}
	if err == nil {
		box, p, err = begin(cmd)
	}
	// The command has its own descriptors now. Closing a nil file does nothing.
	for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f.Close()
	}
	if err != nil {
		in.Close()
		s.out.abandon()
		s.errs.abandon()
		return nil, nil, nil, err
	}
	if in != nil {
		go func() {
			io.WriteString(in, stdin)
			in.Close()
		}()
	}
	return box, p, in, nil
}
