package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/rootfs/layers"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// A Userns is a user namespace with the id map of a runner. The garbage collector closes it.
type Userns struct {
	// Key names the id map, for package layers.
	Key string
	// Enter starts c as uid 0 of the namespace, with its own mounts and an empty network. It acts like [exec.Cmd.Start], and
	// Wait and Process work after it, because the program replaces the process that was started. c's descriptors,
	// environment and directory reach the program unchanged. The program must be a binary that all users may execute. It is
	// killed when the thread that called Enter ends. After an error, c was either not started or has been waited for.
	//
	// dir, unless it is empty, is made first. The program may write to it: for real root it belongs to the id range of real
	// root's sandboxes.
	Enter func(ctx context.Context, c *exec.Cmd, dir string) error

	ns *os.File
}

// Unpacked reports whether a layer is unpacked in a store, for the id map.
func (u *Userns) Unpacked(store, diffID string) bool {
	return len(layers.Open(store, u.Key).Missing([]layers.DiffID{layers.DiffID(diffID)})) == 0
}

// NewUserns makes a user namespace with the id map that a runner would get now. It needs no live process. If the machine
// forbids user namespaces, and images would not run without, the error is an [ipc.Error] with the diagnosis.
func NewUserns() (*Userns, error) {
	progs, err := findPrograms("")
	if err != nil {
		return nil, err
	}
	u, err := holdUserns(progs.runner, planMaps(realRoot(), false))
	if errors.Is(err, errHalfMapped) {
		u, err = holdUserns(progs.runner, planMaps(realRoot(), true))
	}
	if isRefused(err) && len(userns.ChrootLacks()) == 0 {
		return oneID(), nil
	}
	if err != nil {
		return nil, explained(err, progs.runner)
	}
	enter := u.Enter
	u.Enter = func(ctx context.Context, c *exec.Cmd, dir string) error {
		plain := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, ExtraFiles: c.ExtraFiles}
		err := enter(ctx, c, dir)
		if !isRefused(err) || len(userns.ChrootLacks()) > 0 {
			return err
		}
		*c = *plain // a namespace without mounts
		return oneID().Enter(ctx, c, dir)
	}
	return u, nil
}

// PlainUserns returns a Userns without a namespace. Root's sandboxes use it where the machine forbids namespaces. It is nil for
// a user who cannot make such sandboxes from images.
func PlainUserns() *Userns {
	if len(userns.ChrootLacks()) > 0 {
		return nil
	}
	return oneID()
}

// isRefused reports whether the machine forbids namespaces, or what a program needs in one.
func isRefused(err error) bool {
	var refused *userns.Refused
	return errors.As(err, &refused) && refused.Step != userns.StepExecute
}

// oneID returns a Userns that has no namespace: its programs run as this user, and unpack for sandboxes of one id. These are
// the sandboxes with an image where the machine forbids namespaces.
func oneID() *Userns {
	return &Userns{Key: layers.Key(layers.OneIDMap()), Enter: func(_ context.Context, c *exec.Cmd, dir string) error {
		if dir != "" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("prepare directory %q: %w", dir, err)
			}
		}
		c.Env = append(c.Environ(), layers.EnvOneID+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return c.Start()
	}}
}

// Userns opens the user namespace of the runner. Its id map may differ from [NewUserns]'s: the user's subordinate
// ids may have changed since the runner started. Real root's never changes, and real root does not enter a namespace that
// its runner controls.
func (c *Client) Userns() (*Userns, error) {
	if !c.Namespaces() && len(userns.ChrootLacks()) == 0 {
		return oneID(), nil
	}
	if c.root || !c.Namespaces() {
		return NewUserns()
	}
	progs, err := findPrograms("")
	if err != nil {
		return nil, err
	}
	u, err := openUserns(c.hello.PID, progs.runner)
	if c.ended() { // another process may have its pid
		return nil, c.lost(ipc.ErrClosed)
	}
	return u, err
}

// Namespaces reports whether sandboxes have namespaces: the machine allows them.
func (c *Client) Namespaces() bool { return c.hello.Mode != userns.ModeMinimal }

// openUserns opens the user namespace of a process.
func openUserns(pid int, program string) (*Userns, error) {
	key, err := layers.KeyOf(pid)
	if err != nil {
		return nil, err
	}
	ns, err := os.Open(procFile(pid, "ns/user"))
	return &Userns{key, entering(program, ns), ns}, err
}

// entering returns Enter of a [Userns].
func entering(program string, ns *os.File) func(context.Context, *exec.Cmd, string) error {
	return func(ctx context.Context, c *exec.Cmd, dir string) error {
		if dir != "" {
			if err := prepareOwned(dir, realRoot()); err != nil {
				return fmt.Errorf("prepare directory %q: %w", dir, err)
			}
		}
		return explained(enter(ctx, c, program, ns), program)
	}
}

// explained adds the diagnosis to the error of a machine that forbids user namespaces.
func explained(err error, program string) error {
	var refused *userns.Refused
	if isRefused(err) && errors.As(err, &refused) {
		f := diagnose.Read(program)
		why, fix := explainRefused(refused, f)
		text := "enter user namespace: " + why
		if lacks := userns.ChrootLacks(); len(lacks) > 0 {
			text, fix = diagnose.Chroot(lacks, why, fix, f)
		}
		return &refusal{&ipc.Error{Code: ipc.CodeRequirement, Text: text, Hint: fix}, err}
	}
	if err != nil {
		return fmt.Errorf("enter user namespace: %w", err)
	}
	return nil
}

// refusal is an explanation that still has its cause.
type refusal struct {
	said  *ipc.Error
	cause error
}

func (r *refusal) Error() string { return r.said.Error() }

// Unwrap returns both.
func (r *refusal) Unwrap() []error { return []error{r.said, r.cause} }

func prepareOwned(dir string, root bool) error {
	mode := fs.FileMode(0o700)
	if root {
		mode = 0o755
		if err := searchable(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	if !root {
		return nil
	}
	return os.Lchown(dir, rootBase, rootBase)
}

// holdUserns makes a user namespace with the id map of plan. owner is empty or sets [userns.EnvOwner].
func holdUserns(program string, plan *idPlan, owner ...string) (*Userns, error) {
	ctl, theirs, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	h := exec.Command(program)
	h.Env = append(control(0, userns.ModeHold), owner...)
	h.ExtraFiles = []*os.File{theirs}
	if err := h.Start(); err != nil {
		ctl.Close()
		return nil, err
	}
	defer h.Wait()
	defer ctl.Close() // makes the process exit
	theirs.Close()
	switch b, err := readStep(ctl); {
	case err != nil:
		return nil, err
	case b != 'r':
		return nil, fmt.Errorf("make user namespace: unexpected %q", b)
	}
	_, err = plan.write(h.Process.Pid)
	if refused := mapRefused(err); refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	return openUserns(h.Process.Pid, program)
}

// enter starts c through demesne-runner, which joins ns and executes c's program. The program is opened here, because
// the ids of ns may not be able to search a directory above it.
func enter(ctx context.Context, c *exec.Cmd, program string, ns *os.File) error {
	target, err := os.OpenFile(c.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer target.Close()
	ctl, theirs, err := controlPair()
	if err != nil {
		return err
	}
	defer ctl.Close()
	defer theirs.Close()
	redirect(c, program, ns, target, theirs)
	if err := c.Start(); err != nil {
		return err
	}
	theirs.Close()
	defer context.AfterFunc(ctx, func() { c.Process.Kill() })()
	if err := entered(ctl); err != nil {
		c.Process.Kill()
		c.Wait()
		if end, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && end.Signaled() && end.Signal() == syscall.SIGSYS {
			err = &userns.Refused{Step: userns.StepKilled, Errno: syscall.EPERM}
		}
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// redirect makes c execute demesne-runner, with c's own program as a descriptor.
func redirect(c *exec.Cmd, program string, ns, target, ctl *os.File) {
	mode := userns.ModeUser
	if realRoot() {
		mode = userns.ModeRoot
	}
	n := len(c.ExtraFiles)
	c.Env = append(c.Environ(), control(n, mode)...)
	c.Env = append(c.Env, userns.EnvUserns+"="+strconv.Itoa(3+n+1), userns.EnvProgram+"="+strconv.Itoa(3+n+2))
	c.ExtraFiles = append(c.ExtraFiles[:n:n], ctl, ns, target)
	argv := c.Args
	if len(argv) == 0 {
		argv = []string{c.Path}
	}
	c.Args = append([]string{"demesne-runner", "enter"}, argv...)
	c.Path = program
}

// entered waits until the program runs. Its end of the socket is close-on-exec.
func entered(ctl *os.File) error {
	b, err := readStep(ctl)
	if err != nil {
		return err
	}
	if b != 'd' {
		return fmt.Errorf("unexpected %q", b)
	}
	if _, err := readStep(ctl); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// explainRefused explains why the outer user namespace was refused and how to fix it.
func explainRefused(r *userns.Refused, f diagnose.Facts) (why, fix string) {
	switch {
	case r.Step == userns.StepMap && r.Errno == syscall.EPERM && os.Geteuid() == 0:
		return "uid 0 without CAP_SETFCAP may not map itself into a user namespace",
			"bwrap --cap-add CAP_SETFCAP …   # or run demesne as another uid"
	case r.Step == userns.StepPrivate, r.Step == userns.StepSlaves, r.Step == userns.StepAttributes, r.Step == userns.StepKilled:
		return diagnose.Mounts(r, f)
	case r.Step == userns.StepNested:
		f.Privileged = false // its own rights do not apply in the runner's namespace
	}
	return diagnose.Userns(r, f)
}
