package client

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
	"demesne/runner/protocol"
	"demesne/runner/userns"
	"demesne/runner/wire"
)

// launcher starts a runner, or finds the one that is alive.
type launcher struct {
	dir    *runDir
	progs  programs
	root   bool
	spares int
	// started says that the runner is ours, not one that was there.
	started bool
	trace   []runner.Stage
	single  bool // newgidmap failed half-way before
	ids     *idPlan
	mode    string // of userns
	why     string // of ModeMinimal
	fix     string
}

// errRetry says that the runner we found was on its way out.
var errRetry = errors.New("runner ended meanwhile")

// connect returns a connection to a live runner, starting one if there is none.
func (l *launcher) connect(ctx context.Context) (*os.File, error) {
	for {
		conn, err := dialRunner(l.dir)
		if err == nil {
			return conn, nil
		}
		lock, err := l.tryLock()
		if err != nil {
			return nil, err
		}
		if lock != nil {
			conn, err := l.start(lock)
			lock.Close()
			if !errors.Is(err, errRetry) {
				l.started = err == nil
				return conn, err
			}
			continue
		}
		// Somebody is starting or ending; both are over in milliseconds.
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for runner: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// sockaddr names the socket through its directory's descriptor: sun_path holds 107
// bytes, a home directory may be longer.
func sockaddr(d *runDir) (*unix.SockaddrUnix, *os.File, error) {
	dir, err := os.Open(d.path)
	if err != nil {
		return nil, nil, err
	}
	return &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s.sock", dir.Fd(), d.key)}, dir, nil
}

func dialRunner(d *runDir) (*os.File, error) {
	addr, dir, err := sockaddr(d)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, addr); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "runner"), nil
}

// tryLock returns the locked lock file, or nil while somebody else holds it. The
// reaper of a runner that ended removes the file, so the one we locked must still
// be the one that is there.
func (l *launcher) tryLock() (*os.File, error) {
	path := l.dir.file(".lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock runner: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, nil
	}
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	if err1 != nil || err2 != nil || !os.SameFile(a, b) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// start starts a runner with namespaces, or without where the machine forbids them.
func (l *launcher) start(lock *os.File) (*os.File, error) {
	conn, err := l.spawn(lock)
	var refused *userns.Refused
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, errHalfMapped) && !l.single:
		l.single = true
	case errors.As(err, &refused) && l.mode != userns.ModeMinimal:
		l.mode = userns.ModeMinimal
		l.why, l.fix = explainRefused(refused, l.progs.runner)
	default:
		return nil, err
	}
	// What is lower is kept for the next try; the lock is not, the reaper removed it.
	return nil, errRetry
}

// spawn executes demesne-runner and brings it through the hand-shake that package
// userns draws.
func (l *launcher) spawn(lock *os.File) (_ *os.File, err error) {
	listener, err := l.listen()
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	ours, theirs, err := wire.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			ours.Close()
			os.Remove(l.dir.file(".sock"))
		}
	}()
	ctl, ctlChild, err := controlPair()
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	defer ctlChild.Close()
	boot, err := l.boot()
	if err != nil {
		return nil, err
	}
	namespaces := l.root && l.mode != userns.ModeMinimal
	var planned []string
	if namespaces {
		planned = cgroup.Planned(l.dir.key)
	}
	reaper, err := l.execute(planned, ctlChild, theirs, listener, lock)
	if err != nil {
		return nil, fmt.Errorf("start runner: %w", err)
	}
	// After the reaper is there to take them away: we may be killed at any moment.
	// What could not be made shows in the receipt, as a limit that something lesser holds.
	if namespaces {
		boot.CgroupAt, _ = cgroup.Prepare(l.dir.key, rootBase)
	}
	// The reaper outlives us, or ends when the runner does; if we are still here
	// then, somebody has to take its exit status.
	ended := make(chan struct{})
	go func() {
		for {
			if _, err := syscall.Wait4(reaper, nil, 0, nil); err != syscall.EINTR {
				break
			}
		}
		close(ended)
	}()
	ctlChild.Close()
	if l.mode != userns.ModeMinimal {
		l.ids = planMaps(l.root, l.single)
	}
	if err := l.shake(ctl, &boot); err != nil {
		// The reaper takes away what was made for this runner, under names that the
		// next one has too: it must be through before there is a next one.
		ctl.Close()
		<-ended
		// It may have been through before these were there.
		cgroup.Reap(boot.CgroupAt)
		return nil, fmt.Errorf("start runner: %w", err)
	}
	return ours, nil
}

func (l *launcher) boot() (protocol.Boot, error) {
	ns, err := os.Open("/proc/self/ns/user")
	if err != nil {
		return protocol.Boot{}, fmt.Errorf("open own user namespace: %w", err)
	}
	defer ns.Close()
	id, err := protocol.Identify(ns)
	return protocol.Boot{
		RunDir: l.dir.path, Key: l.dir.key, Init: l.progs.init, Callers: id,
		Mode: l.mode, ModeWhy: l.why, ModeFix: l.fix, Kept: l.dir.kept, Spares: l.spares,
	}, err
}

func (l *launcher) listen() (*os.File, error) {
	addr, dir, err := sockaddr(l.dir)
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
	// Before it has a name: real root's run directory can be searched by others, and whoever may write to the
	// file may connect.
	if err := errors.Join(unix.Fchmod(fd, 0o600), unix.Bind(fd, addr), unix.Listen(fd, 4096)); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen for callers: %w", err)
	}
	return f, nil
}

// controlPair is the stream socket of package userns' drawing; the child's end
// blocks, for C.
func controlPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make control socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// execute starts the runner as a process of its own session: a Ctrl-C at our terminal
// is ours to handle. It gets nothing of our environment but where to find the user's
// session bus, for cgroups. Not os/exec: that first makes a process to see whether
// pidfds work, which costs as much as the start itself.
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
		fmt.Sprintf("%s=%d", userns.EnvControl, protocol.FDControl),
		fmt.Sprintf("%s=%d", userns.EnvLock, protocol.FDLock),
		userns.EnvMode + "=" + l.mode,
		userns.EnvClean + "=" + strings.Join(clean, ":"),
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

// shake is the caller's column of the drawing in package userns. After 'g' comes
// the Boot as one line of JSON.
func (l *launcher) shake(ctl *os.File, boot *protocol.Boot) error {
	var pid int
	for {
		var b [1]byte
		if _, err := io.ReadFull(ctl, b[:]); err != nil {
			return fmt.Errorf("wait for runner: %w", err)
		}
		switch b[0] {
		case 'p':
			var n [4]byte
			if _, err := io.ReadFull(ctl, n[:]); err != nil {
				return err
			}
			pid = int(binary.NativeEndian.Uint32(n[:]))
		case 'e':
			var e [2]byte
			if _, err := io.ReadFull(ctl, e[:]); err != nil {
				return err
			}
			return &userns.Refused{Step: userns.Step(e[0]), Errno: syscall.Errno(e[1])}
		case 'r':
			if pid == 0 {
				// B was faster than A: its pid is still to come.
				var p [5]byte
				if _, err := io.ReadFull(ctl, p[:]); err != nil {
					return err
				}
				if p[0] == 'e' {
					return fmt.Errorf("wait for runner: fork: %w", syscall.Errno(p[2]))
				}
				pid = int(binary.NativeEndian.Uint32(p[1:]))
			}
			return l.release(ctl, pid, boot)
		}
	}
}

func (l *launcher) release(ctl *os.File, pid int, boot *protocol.Boot) error {
	if l.mode != userns.ModeMinimal {
		began := time.Now()
		maps, err := l.ids.write(pid)
		l.trace = []runner.Stage{{Name: "maps", MS: float64(time.Since(began).Microseconds()) / 1000}}
		if errors.Is(err, syscall.EPERM) && !errors.Is(err, errHalfMapped) {
			return &userns.Refused{Step: userns.StepMap, Errno: syscall.EPERM}
		}
		if err != nil {
			return err
		}
		boot.UIDMap, boot.GIDMap = maps.UID, maps.GID
		boot.MapWhy, boot.MapFix = maps.Why, maps.Fix
		if err := cgroup.Enter(boot.CgroupAt, pid); err != nil {
			return err
		}
	}
	// First the word it waits for: its runtime starts while we encode the rest.
	if _, err := ctl.Write([]byte{'g'}); err != nil {
		return err
	}
	return json.NewEncoder(ctl).Encode(boot)
}

// absPath makes path absolute without asking the runner's working directory.
func absPath(path string) (string, error) {
	if path == "" || filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	return filepath.Abs(path)
}
