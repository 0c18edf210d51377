package docker

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/session"
)

// process is a command in a container, and its streams: the session.Streams of its command.
type process struct {
	tty, stdin bool
	alone      bool // the processes that it leaves end with it
	out        *journal
	started    chan struct{} // closed when it runs

	mu     sync.Mutex
	size   runner.Winsize
	run    session.Process
	input  *os.File // nil: it has no stdin, or that was closed
	pipes  []*os.File
	theirs []*os.File
}

func newProcess(out *journal, tty, stdin bool) *process {
	return &process{tty: tty, stdin: stdin, out: out, started: make(chan struct{}), size: runner.Winsize{Rows: 24, Cols: 80}}
}

// Open makes the pipes, or asks for a terminal.
func (p *process) Open(cmd *runner.Command) (err error) {
	if p.tty {
		cmd.TTY = &p.size
		return nil
	}
	var in, outw, errw *os.File
	if p.stdin {
		if in, p.input, err = os.Pipe(); err != nil {
			return err
		}
		cmd.Stdin, p.theirs = in, append(p.theirs, in)
	}
	for _, to := range []**os.File{&outw, &errw} {
		r, w, err := os.Pipe()
		if err != nil {
			p.Abandon()
			return err
		}
		*to = w
		p.pipes, p.theirs = append(p.pipes, r), append(p.theirs, w)
	}
	cmd.Stdout, cmd.Stderr = outw, errw
	return nil
}

// Abandon closes the pipes.
func (p *process) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range append(p.pipes, p.theirs...) {
		f.Close()
	}
	if p.input != nil {
		p.input.Close()
		p.input = nil
	}
}

// straggling bounds the wait for output that processes of the background hold open, after a command of exec has ended.
const straggling = time.Second

// Carry copies output into the journal until the command has ended.
func (p *process) Carry(ctx context.Context, run session.Process, _ func()) (*runner.Result, error) {
	p.mu.Lock()
	for _, f := range p.theirs {
		f.Close()
	}
	p.theirs, p.run = nil, run
	if p.tty {
		p.pipes = []*os.File{run.Terminal()}
		p.input = run.Terminal()
	}
	p.mu.Unlock()
	close(p.started)
	var copying sync.WaitGroup
	for i, f := range p.pipes {
		copying.Go(func() { p.copy(f, stdout+byte(i)) })
	}
	res, err := run.Wait(context.Background())
	p.out.hurry()
	if !p.alone {
		for _, f := range p.pipes {
			f.SetReadDeadline(time.Now().Add(straggling))
		}
	}
	copying.Wait()
	p.Abandon()
	return res, err
}

func (p *process) copy(f *os.File, stream byte) {
	buf, from := make([]byte, 32<<10), fsutil.Rest(f)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.out.write(stream, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

var errNotRunning = errors.New("not running")

// signal sends a signal to the command.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	if run == nil {
		return errNotRunning
	}
	return run.Signal(sig)
}

// resize changes the size of the terminal, or the size that it will have.
func (p *process) resize(size runner.Winsize) error {
	p.mu.Lock()
	run := p.run
	p.size = size
	p.mu.Unlock()
	if run == nil || !p.tty {
		return nil
	}
	return run.Resize(size)
}

// write writes to stdin. It waits until the command has started.
func (p *process) write(ctx context.Context, b []byte) error {
	select {
	case <-p.started:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.mu.Lock()
	in := p.input
	p.mu.Unlock()
	if in == nil {
		return errNotRunning
	}
	_, err := in.Write(b)
	return err
}

// closeInput ends stdin. A terminal has no end.
func (p *process) closeInput(ctx context.Context) {
	select {
	case <-p.started:
	case <-ctx.Done():
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.input != nil && !p.tty {
		p.input.Close()
		p.input = nil
	}
}
