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
	"demesne/internal/fsutil"
)

// defaultGrace is the time between asking a program to end and killing it.
const defaultGrace = 5 * time.Second

// A job is one run of demesne-images.
type job struct {
	args []string
	// enter runs the program in the runner's user namespace, where layers are unpacked and removed.
	enter bool
	// lines are written to the program's stdin, which is then closed. If lines is nil, stdin is
	// held open: the program ends when its stdin closes, so it never outlives its parent.
	lines <-chan string
	// out, if not nil, is the program's descriptor 3.
	out *os.File
	// ins, used when out is nil, are the program's descriptors from 3 on.
	ins []*os.File
	// on is called for each event except the last one, from one goroutine.
	on func(events.Event)
}

// outPath is the path under which the program opens its descriptor 3.
const outPath = "/proc/self/fd/3"

// run runs a job and returns its result. It returns only after the program has ended, which follows
// soon after ctx ends.
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

// A process is a running job.
type process struct {
	cmd    *exec.Cmd
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	grace  time.Duration
	ended  chan struct{} // closed after Wait returned
}

// start starts the program with pipes that it makes itself. c.Enter may start the command without
// exec.Cmd, and then stdin, stdout and stderr must be files.
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
		// The unpacker does not need the caller's secrets.
		p.cmd.Env = plainEnv(os.Environ())
		return p, c.Enter(ctx, p.cmd)
	}
	// Its own process group shields the program from Ctrl-C: this process ends it, and it reports
	// its own end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p, p.cmd.Start()
}

// plainEnv returns the variables that a program without network, credentials or user needs.
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

// finish feeds the program and reads its events until it has ended.
func (p *process) finish(ctx context.Context, j job) (events.Event, error) {
	defer p.close()
	var wg sync.WaitGroup
	var said string
	var werr error
	wg.Go(func() { p.watch(ctx, j) })
	wg.Go(func() { p.feed(j.lines) })
	wg.Go(func() { said = readFirst(fsutil.Rest(p.stderr)) })
	wg.Go(func() {
		werr = p.cmd.Wait()
		close(p.ended)
		p.release()
	})
	last, err := readEvents(fsutil.Rest(p.stdout), j.on)
	if err != nil {
		p.kill(j)
	}
	wg.Wait()
	return last, verdict(ctx, last, err, werr, said)
}

// release ends the reading of a program that has ended: what it wrote is in the pipes. A process that it started, such
// as a credential helper's daemon, may still hold their other ends.
func (p *process) release() {
	p.stdin.Close()
	now := time.Now()
	p.stdout.SetReadDeadline(now)
	p.stderr.SetReadDeadline(now)
}

// watch ends the program when ctx ends. It closes the program's stdin if the job has no lines, and
// sends SIGTERM otherwise. After the grace period it kills the program.
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

// kill kills the program and, if it leads a process group, the processes of that group.
func (p *process) kill(j job) {
	select {
	case <-p.ended:
		return // its pid may have been reused
	default:
	}
	if !j.enter {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	p.cmd.Process.Kill()
}

// feed writes the lines. It ignores a write error: the program reports elsewhere why it stopped
// reading.
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
