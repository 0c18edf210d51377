package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// childName is argv[0] of the probe's child.
const childName = "demesne-probe"

// report is the child's result, as JSON on its stdout. An errno of 0 means success.
type report struct {
	PID      int           `json:"pid"`
	Proc     syscall.Errno `json:"proc"`
	Hostname syscall.Errno `json:"hostname"`
}

// Reexec runs the child's part and never returns in a child that a probe started. In other processes it does
// nothing.
func Reexec() {
	if len(os.Args) == 0 || os.Args[0] != childName {
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(look()); err != nil {
		os.Exit(1)
	}
	// The parent needs these namespaces until it kills the child or dies.
	io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// look tests, in the child, the operations that PID 1 of a sandbox needs.
func look() report {
	r := report{PID: os.Getpid()}
	r.Proc = errno(mountProc())
	name := []byte(childName)
	r.Hostname = errno(unix.Sethostname(name))
	if got, err := os.Hostname(); r.Hostname == 0 && (err != nil || got != childName) {
		r.Hostname = syscall.EPERM
	}
	return r
}

// mountProc makes a detached mount of /proc. The kernel applies the same check as for a mount at /proc: it
// compares with the mounts in this namespace.
func mountProc() error {
	ctx, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigCreate(ctx); err != nil {
		return err
	}
	proc, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	var self [16]byte
	n, err := unix.Readlinkat(proc, "self", self[:])
	if err == nil && string(self[:n]) != "1" {
		return unix.ESRCH
	}
	return err
}

func errno(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if e, ok := err.(syscall.Errno); ok {
		return e
	}
	return syscall.EIO
}

// probeNested starts the child in the namespaces of a sandbox and reads its report.
func probeNested(ctx context.Context, e *Env) []answer {
	child, out, err := e.startNested(ctx)
	if err != nil {
		a := e.judge(runner.Missing, "", diagnose.Userns, fmt.Errorf("start child: %w", err))
		return []answer{a, a, a}
	}
	defer stop(child)
	var r report
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		a := answer{status: runner.Missing, why: fmt.Sprintf("read report of child: %v", err)}
		return []answer{a, a, a}
	}
	nested, proc, name := held("user, mount, pid, uts, ipc and cgroup namespaces"), held(""), held("")
	if r.PID != 1 {
		nested = answer{status: runner.Missing, why: fmt.Sprintf("the child is process %d, not 1", r.PID)}
	}
	if r.Proc != 0 {
		proc = e.judge(runner.Degraded, "the host's /proc is bound instead", diagnose.Proc, fmt.Errorf("mount proc: %w", r.Proc))
	}
	if r.Hostname != 0 {
		name = e.judge(runner.Degraded, "the sandbox has the host's name", diagnose.Hostname, fmt.Errorf("sethostname: %w", r.Hostname))
	}
	return []answer{nested, proc, name}
}

// startNested runs this program again. The child inherits three descriptors and no environment.
func (e *Env) startNested(ctx context.Context) (_ *exec.Cmd, out io.Reader, err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{childName}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
		UidMappings:                nestedMap(total(e.UIDMap)),
		GidMappings:                nestedMap(total(e.GIDMap)),
		GidMappingsEnableSetgroups: total(e.GIDMap) > 1,
	}
	// Its stdin ends with this process, which ends the child too.
	if _, err = cmd.StdinPipe(); err != nil {
		return nil, nil, err
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		return nil, nil, err
	}
	return cmd, out, cmd.Start()
}

// stop kills a child, which is PID 1 of its namespace, and reaps it.
func stop(child *exec.Cmd) {
	child.Process.Kill()
	child.Wait()
}

// nestedMap maps n ids to themselves, as a sandbox's map does.
func nestedMap(n int) []syscall.SysProcIDMap {
	m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	if n > 1 {
		m = append(m, syscall.SysProcIDMap{ContainerID: 1, HostID: 1, Size: n - 1})
	}
	return m
}
