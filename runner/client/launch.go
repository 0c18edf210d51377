package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
	"demesne/runner/userns"
)

// launcher connects to the live runner, or starts one.
type launcher struct {
	dir      *runDir
	progs    programs
	root     bool
	poolSize int
	// network means that the first sandbox will have a network.
	network bool
	// started means that this launcher started the runner.
	started bool
	pid     int // of a runner that this launcher started
	trace   []runner.Stage
	single  bool // newgidmap failed after newuidmap succeeded
	ids     *idPlan
	mode    string // a userns mode
	why     string // the reason for ModeMinimal
	fix     string
	alone   bool // this caller's filter refuses sockets, so that no other caller can reach its runner
	deadly  bool // a seccomp filter killed the runner that tried to mount
}

// errRetry is the error for a runner that was already ending.
var errRetry = errors.New("runner ended during the call")

// connect returns a connection to a live runner. It starts one if none is live.
func (l *launcher) connect(ctx context.Context) (*os.File, error) {
	for began := time.Now(); ; {
		conn, err := l.dir.dial()
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, errNoSocket) && !l.alone {
			l.dir, l.alone = l.dir.alone(), true
		}
		if errors.Is(err, unix.EAGAIN) || time.Since(began) > startPatience {
			return nil, ipc.Errorf(ipc.CodeBusy, "wait for runner: another process holds the lock on %q and does not answer: %w", l.dir.file(".lock"), err)
		}
		lock, err := l.tryLock()
		if err != nil {
			return nil, err
		}
		if lock != nil {
			// A runner may have been killed together with its reaper. This takes back what the caller can settle
			// itself.
			grants.TakeBack(l.dir.path, l.dir.key, false)
			conn, err := l.start(lock)
			lock.Close()
			if !errors.Is(err, errRetry) {
				l.started = err == nil
				return conn, err
			}
			continue
		}
		// Another process is starting or ending a runner; both take milliseconds.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for runner: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// sockaddr names the socket through a descriptor of its directory. sun_path holds 107 bytes, and the path of a home
// directory may be longer.
func (d *runDir) sockaddr() (*unix.SockaddrUnix, *os.File, error) {
	dir, err := openAt(d.path)
	if err != nil {
		return nil, nil, err
	}
	return &unix.SockaddrUnix{Name: fsutil.FDPath(int(dir.Fd())) + "/" + d.key + ".sock"}, dir, nil
}

// openAt opens a directory or a namespace for calls that need a descriptor. os.Open would offer it to the poller first,
// in five more system calls.
func openAt(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// readSmall returns what a file of /proc with less than 4 KiB holds, or nothing. os.ReadFile would offer the file to the
// poller, and read it into one growing buffer after the other.
func readSmall(path string) string {
	f, err := openAt(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b := make([]byte, 4<<10)
	n, _ := f.Read(b)
	return string(b[:n])
}

// errNoSocket is the error for a filter that refuses AF_UNIX sockets: systemd's RestrictAddressFamilies and the shells of
// some agents. They allow socketpair(2).
var errNoSocket = errors.New("no AF_UNIX sockets")

func (d *runDir) dial() (*os.File, error) {
	addr, dir, err := d.sockaddr()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.EPERM, unix.EACCES, unix.EAFNOSUPPORT:
		return nil, fmt.Errorf("%w: %w", errNoSocket, err)
	default:
		return nil, os.NewSyscallError("socket", err)
	}
	// A stopped runner's queue of callers may be full. connect(2) would then block forever; with a timeout it fails
	// with EAGAIN.
	patience := unix.NsecToTimeval(greetPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Connect(fd, addr); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "runner"), nil
}

// tryLock returns the locked lock file, or nil if another process holds it. The reaper of an ended runner removes the
// file, so the locked file must still be the one at the path.
func (l *launcher) tryLock() (*os.File, error) {
	path := l.dir.file(".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock runner: %w", err)
	}
	switch err := flock.Try(f, flock.Exclusive); {
	case errors.Is(err, flock.ErrLocked):
		f.Close()
		return nil, nil
	case err != nil:
		f.Close()
		os.Remove(path) // no process can have locked it
		return nil, &ipc.Error{
			Code: ipc.CodeInternal, Text: fmt.Sprintf("lock runner: lock %q: %v", path, err),
			Hint: "set XDG_RUNTIME_DIR to a directory on a file system with locks",
		}
	}
	if !flock.Leads(path, f) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// start starts a runner with namespaces, or without them where the machine forbids them.
func (l *launcher) start(lock *os.File) (*os.File, error) {
	conn, err := l.try(lock)
	var refused *userns.Refused
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, errHalfMapped) && !l.single:
		l.single = true
	case fsutil.Short(err):
		return nil, err
	case errors.As(err, &refused) && l.mode != userns.ModeMinimal:
		facts := diagnose.Read(l.progs.runner)
		if why := facts.TooOld(); why != "" && refused.Errno == syscall.ENOSYS {
			return nil, &ipc.Error{Code: ipc.CodeRequirement, Text: why}
		}
		l.mode = userns.ModeMinimal
		l.why, l.fix = explainRefused(refused, facts)
		l.deadly = refused.Step == userns.StepKilled
	default:
		return nil, err
	}
	// The lowered settings are kept for the next try. The lock is not: the reaper has removed it.
	return nil, errRetry
}

// try starts a runner, unless it could make no sandbox in the mode. Debian's sysctl asks for a capability that no process has in
// the runner's namespace, so it refuses root's sandboxes too.
func (l *launcher) try(lock *os.File) (*os.File, error) {
	if l.mode != userns.ModeMinimal && readSmall("/proc/sys/kernel/unprivileged_userns_clone") == "0\n" {
		return nil, &userns.Refused{Step: userns.StepNested, Errno: syscall.EPERM}
	}
	return l.spawn(lock)
}

// ends holds the sockets of a starting runner: the first two are the caller's, the others the runner's.
type ends struct{ conn, ctl, theirConn, theirCtl, listener *os.File }

func (l *launcher) open() (e ends, err error) {
	if l.alone {
		e.listener, err = os.Open(os.DevNull)
	} else {
		e.listener, err = l.listen()
	}
	if err != nil {
		return e, err
	}
	if e.conn, e.theirConn, err = ipc.Pair(); err == nil {
		e.ctl, e.theirCtl, err = controlPair()
	}
	if err != nil {
		e.close()
		l.unlisten(e)
	}
	return e, err
}

// close closes all sockets but the caller's connection.
func (e ends) close() {
	for _, f := range []*os.File{e.ctl, e.theirConn, e.theirCtl, e.listener} {
		f.Close() // harmless on closed or nil files
	}
}

// unlisten removes the socket of a runner that failed to start.
func (l *launcher) unlisten(e ends) {
	e.conn.Close()
	os.Remove(l.dir.file(".sock"))
}

// spawn executes demesne-runner and performs the handshake that package userns describes.
func (l *launcher) spawn(lock *os.File) (_ *os.File, err error) {
	e, err := l.open()
	if err != nil {
		return nil, err
	}
	defer e.close()
	defer func() {
		if err != nil {
			l.unlisten(e)
		}
	}()
	boot, err := l.boot()
	if err != nil {
		return nil, err
	}
	namespaces := l.root && l.mode != userns.ModeMinimal
	var planned []string
	if namespaces {
		planned = cgroup.Planned(l.dir.key)
	}
	reaper, err := l.execute(planned, e.theirCtl, e.theirConn, e.listener, lock)
	if err != nil {
		return nil, fmt.Errorf("start runner: %w", err)
	}
	// The reaper must already exist to remove the control groups, because the caller may be killed at any moment. A
	// group that cannot be made shows in the receipt as a limit enforced by a fallback.
	if namespaces {
		boot.CgroupAt, _ = cgroup.Prepare(l.dir.key, rootBase)
	}
	ended := collect(reaper)
	e.theirCtl.Close()
	if l.mode != userns.ModeMinimal {
		l.ids = planMaps(l.root, l.single)
	}
	if err := l.shake(e.ctl, &boot); err != nil {
		// The reaper removes what was made for this runner. The next runner uses the same names, so the reaper must
		// finish first.
		e.ctl.Close()
		if end := <-ended; end.Exited() && end.ExitStatus() == userns.ExitSIGSYS {
			err = l.killed()
		}
		// The reaper may have finished before these existed.
		cgroup.Reap(boot.CgroupAt)
		return nil, fmt.Errorf("start runner: %w", err)
	}
	return e.conn, nil
}

// killed returns the error for a runner that a seccomp filter killed. Without namespaces nothing would confine a sandbox
// then, and the error says how to lift the filter.
func (l *launcher) killed() error {
	if l.mode != userns.ModeMinimal {
		return &userns.Refused{Step: userns.StepKilled, Errno: syscall.EPERM}
	}
	cause := &userns.Refused{Step: userns.StepConfine, Errno: syscall.EPERM}
	why, fix := diagnose.Landlock(cause, diagnose.Read(l.progs.runner))
	return &refusal{&ipc.Error{Code: ipc.CodeRequirement, Text: "neither namespaces nor Landlock: nothing would confine a sandbox: " + why, Hint: fix}, cause}
}

// collect waits for a process, reaps it and sends how it ended. The reaper outlives the caller, or ends when the runner
// does; in that case a live caller must reap it.
func collect(pid int) (ended <-chan syscall.WaitStatus) {
	done := make(chan syscall.WaitStatus, 1)
	go func() {
		var end syscall.WaitStatus
		for {
			if _, err := syscall.Wait4(pid, &end, 0, nil); err != syscall.EINTR {
				done <- end
				return
			}
		}
	}()
	return done
}

func (l *launcher) boot() (api.Boot, error) {
	ns, err := openAt("/proc/self/ns/user")
	if err != nil {
		return api.Boot{}, fmt.Errorf("open own user namespace: %w", err)
	}
	defer ns.Close()
	id, err := api.Identify(ns)
	return api.Boot{
		RunDir: l.dir.path, Key: l.dir.key, Init: l.progs.init, Callers: id,
		Mode: l.mode, ModeWhy: l.why, ModeFix: l.fix, NoMounts: l.deadly, Alone: l.alone, SandboxRoot: l.dir.sandboxRoot, PoolSize: l.poolSize, Network: l.network,
	}, err
}

func (l *launcher) listen() (*os.File, error) {
	addr, dir, err := l.dir.sockaddr()
	if err != nil {
		return nil, fmt.Errorf("listen for callers: %w", err)
	}
	defer dir.Close()
	os.Remove(l.dir.file(".sock"))
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("listen for callers: %w", err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	// The mode is set before the socket has a name. Others can search real root's run directory, and a process that
	// may write to the file may connect.
	if err := errors.Join(unix.Fchmod(fd, 0o600), unix.Bind(fd, addr), unix.Listen(fd, api.Backlog)); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen for callers: %w", err)
	}
	return f, nil
}

// execute starts the runner in its own session, so that Ctrl-C at the caller's terminal does not reach it. The runner
// gets only PATH, HOME, GODEBUG and the location of the user's session bus, for cgroups. os/exec is not used: it
// first starts a process to test for pidfds, which costs as much as the start itself.
func (l *launcher) execute(cgroups []string, ctl, conn, listener, lock *os.File) (pid int, err error) {
	log, err := os.OpenFile(l.dir.file(".log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	var fds []uintptr
	for _, f := range []*os.File{null, null, log, ctl, conn, listener, lock} {
		fds = append(fds, f.Fd())
	}
	return syscall.ForkExec(l.progs.runner, []string{"demesne-runner"}, &syscall.ProcAttr{
		Dir: "/", Env: l.environ(cgroups), Files: fds, Sys: &syscall.SysProcAttr{Setsid: true},
	})
}

func (l *launcher) environ(cgroups []string) []string {
	clean := append(append([]string{}, cgroups...), l.dir.file(".sock"), l.dir.file(".log"), l.dir.file(".lock"))
	env := []string{
		fmt.Sprintf("%s=%d", userns.EnvControl, api.FDControl),
		fmt.Sprintf("%s=%d", userns.EnvLock, api.FDLock),
		userns.EnvMode + "=" + l.mode,
		userns.EnvClean + "=" + strings.Join(clean, "\n"),
		userns.EnvKey + "=" + l.dir.key,
		userns.EnvRun + "=" + l.dir.path,
	}
	for _, name := range []string{"PATH", "HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GODEBUG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
