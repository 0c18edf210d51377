package sshserver

import (
	"context"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/session"
)

// Open makes the command's ends of its pipes, or asks for a terminal.
func (x *command) Open(cmd *runner.Command) (err error) {
	if x.size != nil {
		cmd.TTY = x.size
		return nil
	}
	defer func() {
		if err != nil {
			x.Abandon()
		}
	}()
	if cmd.Stdin, x.in, err = os.Pipe(); err != nil {
		return err
	}
	x.theirs = append(x.theirs, cmd.Stdin)
	if x.out, cmd.Stdout, err = os.Pipe(); err != nil {
		return err
	}
	x.theirs = append(x.theirs, cmd.Stdout)
	if x.errs, cmd.Stderr, err = os.Pipe(); err != nil {
		return err
	}
	x.theirs = append(x.theirs, cmd.Stderr)
	return nil
}

// Abandon closes what Open made.
func (x *command) Abandon() {
	x.release()
	for _, f := range []*os.File{x.in, x.out, x.errs} {
		f.Close()
	}
}

func (x *command) release() {
	for _, f := range x.theirs {
		f.Close()
	}
	x.theirs = nil
}

// Carry copies until the command has ended. The end of the connection kills a command.
func (x *command) Carry(ctx context.Context, p session.Process, _ func()) (*runner.Result, error) {
	x.release()
	if x.size != nil {
		x.in, x.out = p.Terminal(), p.Terminal()
	}
	x.mu.Lock()
	x.process = p
	if x.resized != nil {
		p.Resize(*x.resized)
	}
	x.mu.Unlock()
	outs := []*pump{newPump(x.out, x.channel)}
	if x.errs != nil {
		outs = append(outs, newPump(x.errs, x.channel.Stderr()))
	}
	go x.feed()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			p.Signal(unix.SIGHUP)
			p.Signal(unix.SIGKILL)
		case <-ended:
		}
	}()
	res, err := p.Wait(context.Background())
	for _, o := range outs {
		o.settle(x.size != nil)
	}
	x.in.Close()
	return res, err
}

// feed copies the client's input. On a terminal the end of the input is typed, as its own end is a hang-up.
func (x *command) feed() {
	_, err := io.Copy(x.in, x.channel)
	switch {
	case x.size == nil:
		x.in.Close()
	case err == nil:
		x.in.Write([]byte{4})
	}
}

// Times of a terminal's output after the end of its command.
const (
	silent = 30 * time.Millisecond
	tick   = 5 * time.Millisecond
)

// pump copies one stream of output. The client's window bounds it, so a fast command waits.
type pump struct {
	from  *os.File
	to    io.Writer
	moved atomic.Int64
	busy  atomic.Bool
	done  chan struct{}
}

func newPump(from *os.File, to io.Writer) *pump {
	p := &pump{from: from, to: to, done: make(chan struct{})}
	go p.run()
	return p
}

func (p *pump) run() {
	defer close(p.done)
	buf, from := make([]byte, 64<<10), fsutil.Rest(p.from) // processes that the command left may write more
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass sends output. A client that has closed the channel takes none, and the command then gets SIGPIPE.
func (p *pump) pass(b []byte) bool {
	p.busy.Store(true)
	defer p.busy.Store(false)
	_, err := p.to.Write(b)
	p.moved.Add(int64(len(b)))
	if err != nil {
		p.from.Close()
	}
	return err == nil
}

// settle returns once all output of an ended command is sent. What processes write that the command left is then read and
// dropped, so that they can go on.
func (p *pump) settle(terminal bool) {
	if terminal {
		p.quiet()
		return
	}
	p.from.SetReadDeadline(time.Now())
	<-p.done
	p.from.SetReadDeadline(time.Time{})
	go func() {
		io.Copy(io.Discard, p.from)
		p.from.Close()
	}()
}

// quiet waits until every process has closed the terminal, or until the terminal has been silent for a moment.
func (p *pump) quiet() {
	seen, since := int64(-1), time.Now()
	for {
		select {
		case <-p.done:
			return
		case <-time.After(tick):
		}
		if now := p.moved.Load(); now != seen || p.busy.Load() {
			seen, since = now, time.Now()
		}
		if time.Since(since) > silent {
			return
		}
	}
}
