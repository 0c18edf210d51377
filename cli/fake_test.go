package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
	"demesne/session"
)

// bare is an engine without sandboxes: it runs commands directly on the host. It lets these tests drive
// streams, signals, terminals and exit codes with real processes on any kernel. The integration tests cover the
// sandbox itself.
type bare struct{}

func connectBare(context.Context, client.Options) (session.Engine, error) { return bare{}, nil }

// fakeLevel names the variable with the isolation level that bare reports; scripts set it.
const fakeLevel = "BARE_LEVEL"

func (bare) Create(_ context.Context, s runner.Spec) (*session.Sandbox, error) {
	if os.Getenv("BARE_CREATE") == "fail" {
		return nil, ipc.Errorf(ipc.CodeRequirement, "create sandbox: level degraded, full was required")
	}
	if _, err := os.Stat("unpacked"); s.Rootfs != nil && s.Rootfs.Dir == "" && err != nil {
		return nil, ipc.Errorf(ipc.CodeMissing, "create sandbox: layers are not unpacked")
	}
	if e := s.Egress; e != nil {
		fmt.Fprintf(os.Stderr, "egress mode %q allow %q deny %q\n", e.Mode, e.Allow, e.Deny)
		for _, k := range e.Secrets {
			fmt.Fprintf(os.Stderr, "secret %s=%q for %s %q\n", k.Name, k.Value, k.Host, k.Header)
		}
	}
	for _, p := range s.Publish {
		fmt.Fprintf(os.Stderr, "publish %s %d\n", p.Listen, p.To)
	}
	b := newBareBox("bare-1", s.Out, s.Rootfs)
	b.Level = runner.Level(os.Getenv(fakeLevel))
	if b.Level != "" {
		b.Receipt = bareInfo().Receipt
		b.Receipt.Level = b.Level
	}
	b.Trace = []runner.Stage{{Name: "clone", MS: 1}}
	return b, nil
}

func (e bare) Run(ctx context.Context, s runner.Spec, cmd runner.Command) (*session.Sandbox, session.Process, error) {
	b, err := e.Create(ctx, s)
	return started(ctx, b, err, cmd)
}

func started(ctx context.Context, b *session.Sandbox, err error, cmd runner.Command) (*session.Sandbox, session.Process, error) {
	if err != nil {
		return nil, nil, err
	}
	p, err := b.Exec(ctx, cmd)
	return b, p, err
}

func (bare) Open(_ context.Context, id string) (*session.Sandbox, error) {
	if id != "bare-1" {
		return nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "open sandbox %q: no such sandbox", id)
	}
	return newBareBox(id, "/out", nil), nil
}

func (e bare) Exec(ctx context.Context, id string, cmd runner.Command) (*session.Sandbox, session.Process, error) {
	b, err := e.Open(ctx, id)
	return started(ctx, b, err, cmd)
}

func newBareBox(id, out string, root *runner.Rootfs) *session.Sandbox {
	b := &session.Sandbox{Sandbox: &client.Sandbox{ID: id, Out: out, Receipt: &runner.Receipt{Version: 1}}}
	b.Exec = func(_ context.Context, c runner.Command) (session.Process, error) {
		if root != nil {
			c.Env = append(slices.Clone(root.Env), append(c.Env, "IMAGE_USER="+root.User, "IMAGE_DIR="+root.Dir)...)
			c.Dir = cmp.Or(c.Dir, root.WorkingDir)
		}
		p, err := startBare(b.Sandbox, c)
		for _, c.Argv = range c.Else {
			if err == nil {
				break
			}
			p, err = startBare(b.Sandbox, c)
		}
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	return b
}

func (bare) List(context.Context) ([]runner.Info, error) {
	build := bareInfo()
	build.ID, build.Name, build.Spec.Key, build.Spec.Rootfs = "step-1", "", "", &runner.Rootfs{Aside: true}
	return []runner.Info{bareInfo(), build}, nil
}

func (bare) Reserve(context.Context, string) (string, func(), error) { return "", func() {}, nil }

func (bare) Inspect(_ context.Context, id string) (*runner.Info, error) {
	if id != "bare-1" {
		return nil, ipc.Errorf(ipc.CodeNoSuchSandbox, "inspect sandbox %q: no such sandbox", id)
	}
	i := bareInfo()
	return &i, nil
}

func (bare) Usage(_ context.Context, id string) (runner.Usage, error) {
	return runner.Usage{CPU: 1.5, Memory: 48 << 20, Processes: 3}, nil
}

func (bare) Remove(_ context.Context, id string) error {
	if id != "bare-1" {
		return ipc.Errorf(ipc.CodeNoSuchSandbox, "stop sandbox %q: no such sandbox", id)
	}
	return nil
}

func (b bare) Stop(ctx context.Context, id string, grace time.Duration) error {
	fmt.Fprintf(os.Stderr, "stop after %v\n", grace)
	return b.Remove(ctx, id)
}

func (b bare) Fork(ctx context.Context, id, _, out string, _ ...runner.Port) (runner.Forked, error) {
	fmt.Fprintf(os.Stderr, "fork %s out %s\n", id, out)
	return runner.Forked{ID: "bare-2", Copied: 3 << 30, Still: runner.Duration(1234567 * time.Microsecond)}, b.Remove(ctx, id)
}

func (b bare) Snapshot(ctx context.Context, id, _ string) (runner.Forked, error) {
	return runner.Forked{ID: "bare-3"}, b.Remove(ctx, id)
}

func (b bare) EphemeralFork(ctx context.Context, id, _ string, _ []runner.Mount, _ []runner.Route) (runner.Forked, error) {
	return runner.Forked{ID: "bare-4"}, b.Remove(ctx, id)
}

func (b bare) EphemeralSnapshot(ctx context.Context, id string) (runner.Forked, error) {
	return b.Snapshot(ctx, id, "")
}

func (b bare) Layer(context.Context, string, int, runner.LayerOptions, *os.File) (runner.Layered, error) {
	return runner.Layered{Layers: 1}, nil
}

func (b bare) Diff(ctx context.Context, id string) (*runner.Diff, error) {
	return &runner.Diff{Truncated: true, Changes: []runner.Change{
		{Path: ipc.Bytes("/a"), Kind: "A"}, {Path: ipc.Bytes("/r/.git/hooks/x\n\x1b[2J"), Kind: "M", Executes: "git"},
	}}, b.Remove(ctx, id)
}

func (bare) GC(context.Context) ([]string, error) { return nil, nil }

func (bare) Namespaces() bool { return true }

// Userns returns the tests' own namespace.
func (bare) Userns() (*client.Userns, error) {
	start := func(_ context.Context, c *exec.Cmd, _ string) error {
		c.Env = os.Environ()
		return c.Start()
	}
	return &client.Userns{Key: "bare", Enter: start}, nil
}

func (bare) ChangeLimits(_ context.Context, c runner.LimitChange) error {
	if c.Sandbox != "bare-1" {
		return ipc.Errorf(ipc.CodeNoSuchSandbox, "change limits of %q: no such sandbox", c.Sandbox)
	}
	fmt.Fprintf(os.Stderr, "limits %+v\n", c.Limits)
	return nil
}

func (bare) ChangeEgress(_ context.Context, c runner.EgressChange) error {
	if c.Sandbox != "bare-1" {
		return ipc.Errorf(ipc.CodeNoSuchSandbox, "change egress of %q: no such sandbox", c.Sandbox)
	}
	fmt.Fprintf(os.Stderr, "allow %q deny %q\n", c.Allow, c.Deny)
	return nil
}

func (bare) Check(context.Context) ([]runner.Probe, error) {
	probes := []runner.Probe{
		{Name: "user namespace", Status: runner.Held, Detail: "made one"},
		{Name: "id maps", Status: runner.Degraded, Why: "no entry in /etc/subuid", Fix: "usermod --add-subuids 100000-165535 $USER"},
	}
	if os.Getenv("BARE_CHECK") == "missing" {
		probes[0].Status = runner.Missing
	}
	return probes, nil
}

func (bare) Done() <-chan struct{} { return nil }

func (bare) Close() error { return nil }

func bareInfo() runner.Info {
	return runner.Info{
		ID: "bare-1", Name: "build", State: runner.Running, Out: "/out", PID: 7, Execs: 1,
		Spec: runner.Spec{Key: "app"}, Created: time.Now().Add(-3 * time.Minute), Expires: time.Now().Add(47*time.Hour + time.Minute),
		Receipt: &runner.Receipt{
			Version: 1, Level: runner.LevelDegraded, Kernel: "6.1.0", Image: "host", Network: "none", Landlock: 4,
			Layers: []runner.Layer{
				{Name: "mounts", Status: runner.Held, Detail: "a tree of its own"},
				{Name: "landlock", Status: runner.Degraded, Why: "ABI 4 has no scopes", Fix: "a kernel from 6.12 on"},
			},
			UIDMap: []runner.IDRange{{Inside: 0, Host: 100000, Size: 65536}},
			Limits: []runner.LimitReceipt{{Name: "pids", Value: "512", Mechanism: "cgroup2 pids.max", Status: runner.Held}},
		},
	}
}

// bareProcess is a command on the host.
type bareProcess struct {
	sb       *client.Sandbox
	cmd      *exec.Cmd
	tty      *os.File
	state    *os.ProcessState
	timedOut atomic.Bool
	done     chan struct{}
}

func startBare(b *client.Sandbox, c runner.Command) (*bareProcess, error) {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.Env...)
	p := &bareProcess{sb: b, cmd: cmd, done: make(chan struct{})}
	if c.TTY != nil {
		slave, err := p.openTerminal(*c.TTY)
		if err != nil {
			return nil, err
		}
		defer slave.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	} else {
		for i, f := range []*os.File{c.Stdin, c.Stdout, c.Stderr} {
			if f == nil {
				continue
			}
			switch i {
			case 0:
				cmd.Stdin = f
			case 1:
				cmd.Stdout = f
			case 2:
				cmd.Stderr = f
			}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if err := cmd.Start(); err != nil {
		code := ipc.CodeNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = ipc.CodeCommandNotFound
		}
		return nil, ipc.Errorf(code, "exec %q: %w", c.Argv[0], fsutil.Reason(err))
	}
	go p.watch(c.Timeout)
	return p, nil
}

func (p *bareProcess) openTerminal(w runner.Winsize) (slave *os.File, err error) {
	if p.tty, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	fd := stream.FD(p.tty)
	unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	p.Resize(w)
	return os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
}

func (p *bareProcess) watch(timeout time.Duration) {
	if timeout > 0 {
		t := time.AfterFunc(timeout, func() { p.timedOut.Store(true); p.Signal(unix.SIGKILL) })
		defer t.Stop()
	}
	p.state, _ = p.cmd.Process.Wait()
	close(p.done)
}

func (p *bareProcess) Wait(context.Context) (*runner.Result, error) {
	<-p.done
	r := &runner.Result{Sandbox: p.sb.ID, Out: p.sb.Out, Reason: runner.Exited, Receipt: p.sb.Receipt}
	st := p.state.Sys().(syscall.WaitStatus)
	switch {
	case p.timedOut.Load():
		r.ExitCode, r.Reason, r.Detail = app.ExitTimedOut, runner.TimedOut, "ended after --timeout"
	case st.Signaled():
		r.ExitCode, r.Signal, r.Reason = stream.ExitSignal+int(st.Signal()), int(st.Signal()), runner.Signaled
	default:
		r.ExitCode = st.ExitStatus()
	}
	// Simulate a sandbox's memory limit for scripts that ask for it.
	if r.ExitCode == 99 {
		r.ExitCode, r.Reason, r.Detail = 137, runner.OOM, "the limit is 64m"
	}
	return r, nil
}

func (p *bareProcess) Number() int { return p.cmd.Process.Pid }

func (p *bareProcess) Stages() []runner.Stage { return []runner.Stage{{Name: "exec", MS: 1}} }

func (p *bareProcess) Terminal() *os.File { return p.tty }

func (p *bareProcess) Signal(s syscall.Signal) error { return unix.Kill(-p.cmd.Process.Pid, s) }

func (p *bareProcess) Resize(w runner.Winsize) error {
	return unix.IoctlSetWinsize(stream.FD(p.tty), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
}
