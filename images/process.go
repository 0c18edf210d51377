package images

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/images/events"
)

// defaultGrace is between asking a program to end and killing it.
const defaultGrace = 5 * time.Second

// A job is one run of demesne-images.
type job struct {
	args []string
	// enter runs it in the runner's user namespace, which is where layers are unpacked and removed.
	enter bool
	// lines come on its stdin, and then the end. Without any, stdin stays open while it may run: it
	// ends when its stdin does, so that it never outlives us.
	lines <-chan string
	// out, if not nil, is the program's descriptor 3.
	out *os.File
	// ins are its descriptors from 3 on, instead.
	ins []*os.File
	// on is called for each event but the last one, from one goroutine.
	on func(events.Event)
}

// outPath is what a program calls its descriptor 3.
const outPath = "/proc/self/fd/3"

// run runs a job and returns its result. It ends when the program has ended, soon after ctx has.
func (c *Client) run(ctx context.Context, j job) (events.Event, error) {
	if ctx.Err() != nil {
		return events.Event{}, context.Cause(ctx)
	}
	p, err := c.start(ctx, j)
	if err != nil {
		return events.Event{}, fmt.Errorf("start %s: %w", j.args[0], err)
	}
	return p.finish(ctx, j)
}

// A process is a job that runs.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	grace  time.Duration
	ended  chan struct{} // closed when it has been waited for
}

// start starts the program with pipes of our own: c.Enter may start it in another way than
// exec.Cmd does, which takes files only.
func (c *Client) start(ctx context.Context, j job) (_ *process, err error) {
	p := &process{cmd: exec.Command(c.Program, j.args...), grace: c.grace, ended: make(chan struct{})}
	if p.grace == 0 {
		p.grace = defaultGrace
	}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			p.close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
		}
		return r, w
	}
	inR, inW := pipe()
	outR, outW := pipe()
	errR, errW := pipe()
	theirs = []*os.File{inR, outW, errW}
	p.stdin, p.stdout, p.stderr = inW, outR, errR
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	p.cmd.ExtraFiles = j.ins
	if j.out != nil {
		p.cmd.ExtraFiles = []*os.File{j.out}
	}
	if j.enter {
		// What unpacks has no use for the caller's secrets.
		p.cmd.Env = plainEnv(os.Environ())
		return p, c.Enter(ctx, p.cmd)
	}
	// Ctrl-C is for us: we end the program, and it tells its own end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p, p.cmd.Start()
}

// plainEnv keeps what a program without a network, credentials or a user needs.
func plainEnv(environ []string) []string {
	env := []string{}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if name == "PATH" || name == "TMPDIR" || name == "GOTRACEBACK" || strings.HasPrefix(name, "DEMESNE_") {
			env = append(env, e)
		}
	}
	return env
}

func (p *process) close() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}

// finish talks to the program until it has ended.
func (p *process) finish(ctx context.Context, j job) (events.Event, error) {
	defer p.close()
	var wg sync.WaitGroup
	var said string
	var werr error
	wg.Go(func() { p.watch(ctx, j) })
	wg.Go(func() { p.feed(j.lines) })
	wg.Go(func() { said = readFirst(p.stderr) })
	wg.Go(func() {
		werr = p.cmd.Wait()
		close(p.ended)
		p.release()
	})
	last, err := readEvents(p.stdout, j.on)
	if err != nil {
		p.kill(j)
	}
	wg.Wait()
	return last, verdict(ctx, last, err, werr, said)
}

// release ends what still talks to a program that is gone: something it started, a credential
// helper's daemon, may have our pipes.
func (p *process) release() {
	p.stdin.Close()
	soon := time.Now().Add(time.Second)
	p.stdout.SetReadDeadline(soon)
	p.stderr.SetReadDeadline(soon)
}

// watch ends the program when ctx ends: by the end of its stdin where that says so, else by a
// signal, and by force if it does not.
func (p *process) watch(ctx context.Context, j job) {
	select {
	case <-p.ended:
		return
	case <-ctx.Done():
	}
	if j.lines == nil {
		p.stdin.Close()
	} else {
		p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.ended:
	case <-time.After(p.grace):
		p.kill(j)
	}
}

// kill ends the program and, where it leads a process group, what it started.
func (p *process) kill(j job) {
	select {
	case <-p.ended:
		return // its id may be another's by now
	default:
	}
	if !j.enter {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	p.cmd.Process.Kill()
}

// feed writes the lines. A program that reads no more has a reason, and tells it elsewhere.
func (p *process) feed(lines <-chan string) {
	if lines == nil {
		return
	}
	defer p.stdin.Close()
	for {
		select {
		case <-p.ended:
			return
		case line, ok := <-lines:
			if !ok {
				return
			}
			if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
				return
			}
		}
	}
}
