package client

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"

	"demesne/runner"
)

// Stream is a connection to a port inside a sandbox: see [Sandbox.Dial].
type Stream struct {
	in, out *os.File
	process *Process
}

// Dial connects to 127.0.0.1:port of the sandbox, also if it has no network. A process in the sandbox makes the
// connection and copies its bytes, so the host opens no socket of a sandbox. That process waits until something listens
// on the port: end the wait by Close.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (*Stream, error) {
	return s.carry(ctx, "connect", strconv.Itoa(int(port)))
}

// Agent starts a process that listens on a socket in the sandbox, as an ssh agent does. The stream has the path of the
// socket as its first line, then the requests of programs, each of which waits for its answer.
func (s *Sandbox) Agent(ctx context.Context) (*Stream, error) { return s.carry(ctx, "agent") }

// Listen starts a process that listens on 127.0.0.1:port of the sandbox, or with port 0 on a free one. The stream has the port as
// its first line, and a line for each connection, which the next stream of [Sandbox.Take] carries.
func (s *Sandbox) Listen(ctx context.Context, port uint16) (*Stream, error) {
	return s.carry(ctx, "listen", strconv.Itoa(int(port)))
}

// Take carries a connection that a process of [Sandbox.Listen] took.
func (s *Sandbox) Take(ctx context.Context, port uint16) (*Stream, error) {
	return s.carry(ctx, "connect", "@"+strconv.Itoa(int(port)))
}

// carry starts insideProgram with arguments.
func (s *Sandbox) carry(ctx context.Context, args ...string) (*Stream, error) {
	cmd := runner.Command{Argv: append([]string{insideProgram}, args...), Dir: "/"}
	var pipes pipes
	in, err1 := pipes.to(&cmd.Stdin)
	out, err2 := pipes.from(&cmd.Stdout)
	if err := errors.Join(err1, err2); err != nil {
		pipes.close()
		return nil, err
	}
	p, err := s.exec(ctx, cmd, how{silent: true})
	pipes.handOver()
	if err != nil {
		pipes.close()
		return nil, err
	}
	return &Stream{in, out, p}, nil
}

func (s *Stream) Read(b []byte) (int, error)  { return s.out.Read(b) }
func (s *Stream) Write(b []byte) (int, error) { return s.in.Write(b) }

// CloseWrite ends the input of the program at the port. Its output goes on.
func (s *Stream) CloseWrite() error { return s.in.Close() }

// Wait waits until the process that carries the connection has passed everything on, after CloseWrite.
func (s *Stream) Wait(ctx context.Context) { s.process.Wait(ctx) }

// Close ends the connection and the process that carries it.
func (s *Stream) Close() error {
	err := errors.Join(s.in.Close(), s.out.Close())
	s.process.Signal(syscall.SIGKILL)
	return err
}
