package desk

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"

	"demesne/mcp/work"
	"demesne/runner"
)

// longest is how long a command goes on that nobody bounds.
const longest = 48 * time.Hour

// outside is where a command runs that names no directory.
const outside = "/out"

// execute runs a request's command in box and takes its output. When ctx ends first, so
// does what was started, and the error is why it ended.
func (d *Desk) execute(ctx context.Context, box *runner.Sandbox, r work.Request, w work.Watch, s streams) (*runner.Result, error) {
	cmd := runner.Command{
		Argv: []string{"/bin/sh", "-c", r.Command}, Env: r.Env, Dir: r.Dir, User: r.Spec.User, Timeout: r.Timeout,
	}
	if cmd.Dir == "" {
		cmd.Dir = outside
	}
	if cmd.Timeout <= 0 {
		cmd.Timeout = longest
	}
	defer d.asks.listen(box.ID, w.Ask)()
	alone := r.Spec.Lifetime == runner.OneShot
	p, feed, err := start(ctx, box, cmd, r.Stdin, s)
	if err != nil {
		if alone {
			stop(box)
		}
		return nil, err
	}
	if w.Output != nil {
		w.Output(s.out.glimpse)
	}
	defer context.AfterFunc(ctx, func() { end(box, p, alone) })()
	// While the command runs, nobody waits for this. A result without it is one still.
	box.Account(ctx)
	res, err := p.Wait(context.Background())
	if err != nil {
		end(box, p, alone) // or its output might go on for ever
	}
	s.out.finish(alone)
	s.errs.finish(alone)
	feed.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return res, err
}

// end ends a command with everything it started: the sandbox, if it is the command's alone.
func end(box *runner.Sandbox, p *runner.Process, alone bool) {
	if alone {
		stop(box)
		return
	}
	p.Signal(syscall.SIGKILL)
}

// start starts cmd with pipes; to close feed ends what it has on stdin. It does not end
// half-way with ctx: then nobody could tell what is to be ended.
func start(ctx context.Context, box *runner.Sandbox, cmd runner.Command, stdin string, s streams) (_ *runner.Process, feed io.Closer, err error) {
	var in *os.File
	if stdin != "" {
		if cmd.Stdin, in, err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	cmd.Stdout, err = s.out.open()
	if err == nil {
		cmd.Stderr, err = s.errs.open()
	}
	var p *runner.Process
	if err == nil {
		p, err = box.Exec(context.WithoutCancel(ctx), cmd)
	}
	// The command has its own by now. To close one that is nil does nothing.
	for _, f := range []*os.File{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f.Close()
	}
	if err != nil {
		in.Close()
		s.out.abandon()
		s.errs.abandon()
		return nil, nil, err
	}
	go func() {
		io.WriteString(in, stdin)
		in.Close()
	}()
	return p, in, nil
}
