package kernels

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/files"
)

// Sandbox is the part of a sandbox that a kernel needs.
type Sandbox interface {
	// Exec starts a command, as client.Sandbox.Exec does.
	Exec(context.Context, runner.Command) (Process, error)
	// Dial connects to a port of the sandbox's loopback as soon as something listens there.
	Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error)
	// Files performs one operation on the sandbox's files, as client.Sandbox.Files does.
	Files(context.Context, files.Request) (*files.Answer, error)
}

// Process is a kernel's process.
type Process interface {
	Signal(syscall.Signal) error // to its process group
	Wait(context.Context) (*runner.Result, error)
}

// Running is a kernel with its process.
type Running struct {
	*Kernel
	Info *Info

	stdin   func(context.Context) (Channel, error) // see Stdin
	process Process
	result  *runner.Result // of the process; set before ended is closed
	ended   chan struct{}

	mu   sync.Mutex
	said text.Last // what the process wrote in addition to its messages
	open int       // outputs that have not ended; then quiet is closed

	quiet chan struct{}
}

// lastGrace is how long the outputs of a process that has ended are awaited, if another process holds its pipes.
const lastGrace = 300 * time.Millisecond

// maxSaid bounds what is kept of a kernel's stderr, in bytes.
const maxSaid = 16 << 10

// Connection is the content of a kernel's connection file (jupyter_client documentation, "Connection files").
type Connection struct {
	Transport string `json:"transport"`
	IP        string `json:"ip"`
	Shell     uint16 `json:"shell_port"`
	IOPub     uint16 `json:"iopub_port"`
	Stdin     uint16 `json:"stdin_port"`
	Control   uint16 `json:"control_port"`
	HB        uint16 `json:"hb_port"`
	Scheme    string `json:"signature_scheme"`
	Key       string `json:"key"`
	Name      string `json:"kernel_name"`
}

// newConnection chooses five ports below the range of ports that the kernel gives to clients (ip(7),
// ip_local_port_range). A sandbox has a network of its own, so a collision takes another kernel in the same sandbox.
func newConnection(name string) Connection {
	var b [2]byte
	rand.Read(b[:])
	first := 10000 + binary.LittleEndian.Uint16(b[:])%4000*5
	return Connection{
		Transport: "tcp", IP: "127.0.0.1", Scheme: "hmac-sha256", Key: rand.Text(), Name: name,
		Shell: first, IOPub: first + 1, Stdin: first + 2, Control: first + 3, HB: first + 4,
	}
}

// Start starts the kernel of a kernelspec and waits until it answers. dir is a directory of the sandbox in which its user
// may write; the kernel runs in workdir. A kernel that ends, or cannot be reached because another program has one of its
// ports, is started again at other ports until there were that many tries.
func Start(ctx context.Context, sb Sandbox, s Spec, dir, workdir string, tries int) (k *Running, err error) {
	for range tries {
		if k, err = start(ctx, sb, s, dir, workdir); !errors.Is(err, ErrDead) || ctx.Err() != nil {
			break
		}
	}
	return k, err
}

func start(ctx context.Context, sb Sandbox, s Spec, dir, workdir string) (*Running, error) {
	c := newConnection(s.Name)
	content, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	file := fmt.Sprintf("%s/kernel-%d.json", dir, c.Shell)
	if _, err := sb.Files(ctx, files.Request{Write: &files.Write{Path: file, Content: content, Private: true}}); err != nil {
		return nil, fmt.Errorf("write connection file: %w", err)
	}
	cmd := runner.Command{Dir: workdir}
	cmd.Argv, cmd.Env = s.command(file)
	r := newRunning()
	var p pipes
	defer p.close()
	out, errs := p.from(), p.from()
	if err := r.run(ctx, sb, cmd, &p, 0); err != nil {
		return nil, err
	}
	go r.listen(out)
	go r.listen(errs)
	o := Options{Interrupt: r.interrupt}
	if s.InterruptMode == "message" {
		o.Interrupt = func() error { return r.interruptByMessage(sb, c) }
	}
	r.stdin = func(ctx context.Context) (Channel, error) { return r.dial(ctx, sb, c.Stdin, Dealer, c.Key) }
	if o.Shell, err = r.dial(ctx, sb, c.Shell, Dealer, c.Key); err == nil {
		o.IOPub, err = r.dial(ctx, sb, c.IOPub, Sub, c.Key)
	}
	return r.attach(ctx, o, err)
}

// Stdin connects to the channel on which the kernel asks for input, as by Python's input(), if the code's request allows it.
// The channel is nil for a kernel that never asks.
func (r *Running) Stdin(ctx context.Context) (Channel, error) {
	if r.stdin == nil {
		return nil, nil
	}
	return r.stdin(ctx)
}

// StartDriver starts one of demesne's own kernels, whose command speaks as package driver describes. The command gets a
// further argument.
func StartDriver(ctx context.Context, sb Sandbox, cmd runner.Command) (*Running, error) {
	r := newRunning()
	var p pipes
	defer p.close()
	requests, answers, control := p.to(), p.from(), p.to()
	cmd.Extra = p.theirs[:3:3]
	out, errs := p.from(), p.from()
	key := rand.Text()
	cmd.Argv = append(cmd.Argv[:len(cmd.Argv):len(cmd.Argv)], key)
	if err := r.run(ctx, sb, cmd, &p, 3); err != nil {
		return nil, err
	}
	lines := newLines(requests, answers, mark(key), [2]*os.File{out, errs}, r.hear, markWait)
	interrupt := func() error {
		control.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(control, lines.current()+"\n") // for a kernel that cannot see signals while code runs
		return r.interrupt()
	}
	return r.attach(ctx, Options{Shell: lines, IOPub: lines, Interrupt: interrupt}, nil)
}

func newRunning() *Running {
	r := &Running{ended: make(chan struct{}), quiet: make(chan struct{}), open: 2}
	r.said.Most = maxSaid
	return r
}

// pipes are the pipes of one process: its ends, and the host's.
type pipes struct {
	theirs, ours []*os.File
	err          error
}

// to returns the host's end of a pipe to the process.
func (p *pipes) to() *os.File { return p.add(true) }

// from returns the host's end of a pipe from the process.
func (p *pipes) from() *os.File { return p.add(false) }

func (p *pipes) add(to bool) *os.File {
	r, w, err := os.Pipe()
	p.err = errors.Join(p.err, err)
	theirs, ours := w, r
	if to {
		theirs, ours = r, w
	}
	p.theirs, p.ours = append(p.theirs, theirs), append(p.ours, ours)
	return ours
}

// close closes the ends that have no owner: files ignore a second close, and nil files every one.
func (p *pipes) close() {
	for _, f := range slices.Concat(p.theirs, p.ours) {
		f.Close()
	}
}

// run starts the kernel's process. Its stdout and stderr are the ends that follow the first extra ones of p.
func (r *Running) run(ctx context.Context, sb Sandbox, cmd runner.Command, p *pipes, extra int) (err error) {
	if p.err != nil {
		return p.err
	}
	cmd.Stdout, cmd.Stderr = p.theirs[extra], p.theirs[extra+1]
	if r.process, err = sb.Exec(ctx, cmd); err != nil {
		return fmt.Errorf("start kernel: %w", err)
	}
	ours := p.ours
	p.ours = nil
	go func() {
		r.result, _ = r.process.Wait(context.Background())
		close(r.ended)
		// The pipes may still hold outputs. A process that the kernel left may keep them open.
		time.Sleep(lastGrace)
		for _, f := range ours[:extra] {
			f.Close()
		}
		for _, f := range ours[extra:] { // their readers close them, after what they hold now
			f.SetReadDeadline(time.Now())
		}
	}()
	return nil
}

// listen keeps what the process writes in addition to its messages.
func (r *Running) listen(f *os.File) {
	defer f.Close()
	b, from := make([]byte, 4096), fsutil.Rest(f)
	for {
		n, err := from.Read(b)
		r.hear(b[:n])
		if err != nil {
			r.hear(nil)
			return
		}
	}
}

// hear keeps b; nil: an output has ended.
func (r *Running) hear(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.Write(b)
	if b == nil {
		if r.open--; r.open == 0 {
			close(r.quiet)
		}
	}
}

// Said returns the last bytes that the process wrote in addition to its messages. They are untrusted.
func (r *Running) Said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.ToValidUTF8(string(r.said.End(maxSaid)), "\uFFFD")
}

// interrupt has the kernel raise what Ctrl-C raises.
func (r *Running) interrupt() error { return r.process.Signal(syscall.SIGINT) }

// Ended is closed when the kernel's process has ended. Result then returns how.
func (r *Running) Ended() <-chan struct{} { return r.ended }

// Result returns how the kernel's process ended; nil: it has not, or the sandbox was removed.
func (r *Running) Result() *runner.Result {
	select {
	case <-r.ended:
		return r.result
	default:
		return nil
	}
}

// Kill ends the kernel and waits for its end.
func (r *Running) Kill() {
	r.process.Signal(syscall.SIGKILL)
	<-r.ended
	if r.Kernel != nil {
		select { // its connection ends after its last outputs, which a request may still wait for
		case <-r.Done():
		case <-time.After(markWait):
		}
		r.Close()
	}
}

// interruptByMessage interrupts a kernel that handles no signal.
func (r *Running) interruptByMessage(sb Sandbox, c Connection) error {
	ctx, cancel := context.WithTimeout(context.Background(), interruptGrace)
	defer cancel()
	control, err := r.dial(ctx, sb, c.Control, Dealer, c.Key)
	if err != nil {
		return err
	}
	time.AfterFunc(interruptGrace, func() { control.Close() })
	m, err := newMessage(r.session, "interrupt_request", struct{}{})
	if err == nil {
		err = control.Send(m)
	}
	return err
}

// dial connects to a socket of the kernel, which may be starting yet. The kernel's end ends the attempt. A connection that
// fails before it is made, while the kernel lives, is made again.
func (r *Running) dial(ctx context.Context, sb Sandbox, port uint16, socket, key string) (c Channel, err error) {
	for range dials {
		if c, err = r.dialOnce(ctx, sb, port, socket, key); !errors.Is(err, errGreeting) || errors.Is(err, ErrTooLarge) {
			return c, err
		}
		select {
		case <-r.ended:
			return nil, ErrDead
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(greetEvery):
		}
	}
	for _, closed := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, closed) {
			return nil, errEarly
		}
	}
	return nil, errOther
}

// dials bounds the attempts to connect to one socket.
const dials = 5

// unreached is the error of a kernel that could not be reached at its ports, and is therefore ended.
type unreached string

func (u unreached) Error() string        { return "connect to kernel: " + string(u) }
func (u unreached) Is(target error) bool { return target == ErrDead }

const (
	errEarly = unreached("it closed the connection before it answered")
	errOther = unreached("another program answers at its port")
)

func (r *Running) dialOnce(ctx context.Context, sb Sandbox, port uint16, socket, key string) (Channel, error) {
	rw, err := sb.Dial(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("connect to kernel: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.ended:
		case <-ctx.Done():
		case <-done:
			return
		}
		rw.Close()
	}()
	return Dial(rw, socket, []byte(key))
}

// attach connects to the kernel, unless err says that it cannot, and waits until it answers.
func (r *Running) attach(ctx context.Context, o Options, err error) (*Running, error) {
	if err == nil {
		r.Kernel = newKernel(o)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		go func() {
			select {
			case <-r.ended:
				cancel(ErrDead)
			case <-ctx.Done():
			}
		}()
		if r.Info, err = r.Ready(ctx); err == nil {
			return r, nil
		}
	}
	select {
	case <-r.ended:
		if !errors.Is(err, ErrDead) {
			err = fmt.Errorf("%w: %w", ErrDead, err)
		}
	default:
	}
	r.Kill()
	select {
	case <-r.quiet:
	case <-time.After(2 * lastGrace):
	}
	if said := strings.TrimSpace(r.Said()); said != "" {
		err = fmt.Errorf("%w: %s", err, text.SafeLine(said[strings.LastIndexByte(said, '\n')+1:]))
	}
	return nil, fmt.Errorf("start kernel: %w", err)
}
