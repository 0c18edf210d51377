package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"

	"demesne/runner"
	"demesne/runner/fileops"
)

// Tree is a process in a sandbox that performs operations on its files as one user. To start it takes longer than most
// operations, so a caller keeps it for the next one. It performs one operation at a time. It ends with its caller at the
// latest, and everything that it sends is untrusted.
type Tree struct {
	in, out *os.File
	shared  *fileops.Shared // nil: the kernel gives none
	process *Process
	ended   chan struct{} // closed when the process has ended
	from    *bufio.Reader
	to      *bufio.Writer
	broken  bool
}

// Tree starts a Tree as a user of the sandbox, in a directory. nil is the sandbox's own user; empty is the directory of commands.
func (s *Sandbox) Tree(ctx context.Context, user *runner.User, dir string) (*Tree, error) {
	// With a second processor, Go's monitor thread wakes every 80 µs for some milliseconds after each operation, and takes
	// that time from the caller's CPU.
	cmd := runner.Command{Argv: []string{insideProgram, "tree"}, Dir: dir, User: user, Env: []string{"GOMAXPROCS=1"}}
	var pipes pipes
	in, err1 := pipes.to(&cmd.Stdin)
	out, err2 := pipes.from(&cmd.Stdout)
	err := errors.Join(err1, err2)
	shared, memory, serr := fileops.Share()
	if serr == nil {
		cmd.Stderr, pipes.theirs = memory, append(pipes.theirs, memory)
	}
	var p *Process
	if err == nil {
		p, err = s.exec(ctx, cmd, how{silent: true})
	}
	pipes.handOver()
	if err != nil {
		pipes.close()
		shared.Close()
		return nil, err
	}
	t := &Tree{in: in, out: out, shared: shared, process: p, ended: make(chan struct{}), from: bufio.NewReaderSize(out, 64<<10)}
	t.to = bufio.NewWriterSize(t.in, 64<<10)
	runtime.AddCleanup(t, (*fileops.Shared).Close, shared)
	go func() {
		p.Wait(context.Background())
		close(t.ended)
	}()
	return t, nil
}

// Usable reports whether t can perform another operation, as far as is known.
func (t *Tree) Usable() bool {
	select {
	case <-t.ended:
		return false
	default:
		return !t.broken
	}
}

// Close ends t and waits for that.
func (t *Tree) Close() {
	t.kill()
	<-t.ended
}

func (t *Tree) kill() {
	t.in.Close()
	t.out.Close()
	t.process.Signal(syscall.SIGKILL)
}

// Do performs an operation: see [fileops.Call]. After the end of ctx, and after some errors, t is not usable any more.
func (t *Tree) Do(ctx context.Context, q fileops.Request, put func(io.Writer) error, take func(*fileops.Answer, *bufio.Reader) error) (a *fileops.Answer, err error) {
	if !t.Usable() {
		return nil, fileops.ErrUnsent
	}
	stop := context.AfterFunc(ctx, t.kill)
	a, again, err := fileops.Call(t.to, t.from, t.shared, q, put, take)
	if !stop() {
		again, err = false, context.Cause(ctx)
	}
	if t.broken = !again; t.broken {
		t.shared.Close()
	}
	return a, err
}
