// Package engine implements demesne-runner: it creates sandboxes, runs commands in them and tears them down.
//
// One process serves many callers and many sandboxes. It runs in an outer user namespace with all capabilities, in
// its own mount namespace, and in the host's network and pid namespaces. The files, in the order of one run:
//
//	serve.go      connections; calls.go  requests, one goroutine each; registry.go  the table of sandboxes
//	create.go     validation of a Spec
//	build.go      the steps of creating a sandbox (package receipt: what holds afterwards); teardown.go  its end
//	tree.go       its mounts; mountasync.go  mounting while PID 1 starts; image.go, imagelock.go  the image's layers;
//	              binds.go  the caller's directories
//	start.go      PID 1, on the best fallback level that works here
//	config.go     Spec → libcontainer configuration, pure
//	egress.go     the permitted egress of a sandbox, pure
//	network.go    its network, by package network; ask.go  changes to it
//	exec.go       a command in a sandbox; environ.go  its user and environment; result.go  its result
//	terminal.go   its terminal; attach.go  clients of the terminal
//	pool.go       prepared sandboxes; poolstate.go  their number and shapes
//	keep.go       the directory of a persistent sandbox; ttl.go  its expiry
//	fork.go       a sandbox made from the files of another; livefork.go  from a running one; autopause.go  idle ones
//	restart.go    starting a sandbox that has only files; reuse.go  finding a sandbox by its key
//	linger.go     how long the runner waits for the next caller
//	diff.go       changes against the image; layer.go  the same as layers of a new image
//	minimal.go    sandboxes without namespaces, for machines that forbid them
//
// The kernel guarantees teardown. PID 1 ends when its socket to the runner closes; its pid namespace ends with it,
// and the mounts and the network namespace end with their last user. No code of the runner has to run for a sandbox
// to end.
package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"demesne/runner/api"
	"demesne/runner/doctor"
	"demesne/runner/given"
	"demesne/runner/limits"
	"demesne/runner/network/proxyclient"
	"demesne/runner/store"

	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// Engine is the state of a runner.
type Engine struct {
	boot   api.Boot
	dir    string // private tmpfs: rootfs trees and libcontainer's state
	host   *limits.Host
	kernel string
	state  *store.History
	life   *os.File // the reaper waits until this pipe end is closed
	clock  *given.Clock
	ready  chan struct{} // closed when setUp has set the fields above, or broken
	broken error
	ahead  ahead
	outMap outMap // real root's

	mu          sync.Mutex
	sandboxes   map[string]*sandbox
	recent      map[execKey]*execution // those of live sandboxes, and the last ones that ended
	ended       []execKey              // oldest first
	fallback    int                    // index in fallbacks: the first level that worked here
	fallbackWhy error                  // why no better level works
	callers     int
	keys        keyLocks
	types       sync.Once // see learnTypes
	pool        pool
	turns       chan struct{}     // one token for each sandbox that is being built for a caller
	init        string            // see initProgram
	proxy       proxyclient.Proxy // shared by all sandboxes
	kept        *store.Store      // see keeper
	sweeping    sync.Mutex        // serializes sweep
	linger      linger
	idle        chan struct{} // closed when the runner has nothing left to serve
	accepting   bool
}

// Main runs until the runner is no longer needed and returns its exit code.
func Main() int {
	life, err := lifeline()
	clean := false
	if err == nil {
		clean, err = serveAll(life)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "demesne-runner: %v\n", err)
		return 1
	}
	if clean {
		life.Write([]byte("c"))
	}
	return 0
}

// lifeline returns the runner's end of the pipe that the reaper waits on.
func lifeline() (*os.File, error) {
	if os.Getenv(userns.EnvControl) == "" {
		return nil, errors.New("start: demesne starts this program; do not start it directly")
	}
	for _, name := range []string{userns.EnvControl, userns.EnvClean, userns.EnvMode, userns.EnvLock} {
		os.Unsetenv(name)
	}
	return os.NewFile(userns.FDLife, "life"), nil
}

// askReaper makes the reaper remove the sockets of ended sandboxes.
func (e *Engine) askReaper() { e.life.Write([]byte("t")) }

// serveAll serves until the runner is idle and reports whether it leaves nothing for the reaper to remove.
func serveAll(life *os.File) (clean bool, _ error) {
	os.Setenv("GOMAXPROCS", "1")       // for libcontainer's children; this process has started already
	logrus.SetLevel(logrus.ErrorLevel) // the receipt reports what libcontainer would warn about
	e := &Engine{sandboxes: map[string]*sandbox{}, recent: map[execKey]*execution{}, idle: make(chan struct{}), ready: make(chan struct{})}
	e.life, e.clock = life, given.NewClock()
	e.accepting, e.callers = true, 1 // the caller that started the runner
	e.turns = make(chan struct{}, runtime.NumCPU()+1)
	ctl := os.NewFile(api.FDControl, "control")
	line, err := bufio.NewReader(ctl).ReadBytes('\n')
	ctl.Close()
	if err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	if err := json.Unmarshal(line, &e.boot); err != nil {
		return false, fmt.Errorf("read boot message: %w", err)
	}
	e.pool.most = e.boot.Spares
	go e.watchProgram()
	// Callers are greeted meanwhile, because they have preparations of their own.
	go func() { e.broken = e.setUp(); close(e.ready) }()
	unix.SetNonblock(api.FDConn, true)
	unix.SetNonblock(api.FDListener, true)
	// SO_PEERCRED shows callers the process that called listen(2) last, not the one that made the socket (unix(7)).
	unix.Listen(api.FDListener, api.Backlog)
	go e.accept(os.NewFile(api.FDListener, "listener"))
	e.greet(ipc.NewConn(os.NewFile(api.FDConn, "caller")))
	e.leave()
	<-e.idle
	<-e.ready
	e.pool.close()
	e.proxy.Close()
	if e.boot.Mode == userns.ModeMinimal {
		os.Remove(e.dir)
	}
	return len(doctor.Left(e.boot.RunDir, e.boot.Key)) == 0 && !given.Left(e.boot.RunDir, e.boot.Key), nil
}

// settled waits for setUp and returns its error.
func (e *Engine) settled() error {
	<-e.ready
	if e.broken != nil {
		return fmt.Errorf("set up runner: %w", e.broken)
	}
	return nil
}

// setUp does the one-time work. It finds cgroups, mounts the private tmpfs and, for libcontainer, a cgroup2 of the
// runner's own namespace.
func (e *Engine) setUp() (err error) {
	if e.boot.Mode != userns.ModeMinimal {
		e.ahead.begin(e.boot.Network)
	}
	if e.kernel, err = kernelRelease(); err != nil {
		return err
	}
	if e.state, err = store.OpenHistory(filepath.Join(e.boot.RunDir, "state")); err != nil {
		return err
	}
	if e.enter() {
		go func() { defer e.leave(); e.sweep() }()
	}
	// Both calls open what they need of /sys/fs/cgroup before mountCgroup2 covers it.
	e.host = limits.Open(e.boot.Key, len(e.boot.CgroupAt) > 0)
	limits.Default() // caches its result
	if e.boot.Mode == userns.ModeMinimal {
		e.dir = filepath.Join(e.boot.RunDir, "scratch", e.boot.Key)
		return os.MkdirAll(e.dir, 0o700)
	}
	limits.Share()
	e.dir = filepath.Join(e.boot.RunDir, "mnt")
	if err := e.mountOwn(); err != nil {
		return err
	}
	go learnPidfds()
	return mountCgroup2()
}

// learnPidfds makes package os detect whether pidfds work. Package os starts a process for that, so do it before
// the runner starts any.
func learnPidfds() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Release()
	}
}

// mountOwn makes the mounts of the runner's namespace slaves and mounts its private tmpfs.
func (e *Engine) mountOwn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	// libcontainer reads /proc through a clone of the mount if it can get one. Freeing each clone waits for an RCU
	// grace period of the whole machine. Only the runner mounts here, so the clone protects against nothing. Where
	// clones are refused, libcontainer does without. A recursive bind of a directory above /proc omits it, too.
	unix.Mount("", "/proc", "", unix.MS_UNBINDABLE, "")
	if err := unix.Mount("demesne", e.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("mount %q: %w", e.dir, err)
	}
	// Unbindable: a bind of a caller's directory that contains this mount omits it. Otherwise one sandbox would see
	// the trees of the others.
	if err := unix.Mount("", e.dir, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("make %q unbindable: %w", e.dir, err)
	}
	// Both are separate mounts and therefore not unbindable. libcontainer's state directory is a layer of the
	// overlay that protects the runner's own program from being overwritten from inside (CVE-2019-5736). Without it
	// libcontainer would copy the program for each sandbox.
	for _, dir := range []string{e.containers(), e.shown()} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("demesne", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
			return fmt.Errorf("mount %q: %w", dir, err)
		}
	}
	if err := unix.Mount("", e.shown(), "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %q: %w", e.shown(), err)
	}
	return nil
}

// containers returns libcontainer's state directory.
func (e *Engine) containers() string { return filepath.Join(e.dir, "libcontainer") }

// shown returns the directory where trees appear in the mount namespaces of sandboxes, even of those already
// running.
func (e *Engine) shown() string { return filepath.Join(e.dir, "shown") }

// mountCgroup2 gives libcontainer the cgroup mount that it requires, even where the host has no visible one
// (nested) or a v1 hierarchy. The mount belongs to the runner's own cgroup namespace and is only read.
func mountCgroup2() error {
	const at = "/sys/fs/cgroup"
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Read-only. Otherwise libcontainer would make cgroups that package limits does not know.
	if _, err := os.Stat(at); err != nil {
		if err := unix.Mount("sys", "/sys", "tmpfs", flags, "mode=0755"); err != nil {
			return fmt.Errorf("mount %q: %w", "/sys", err)
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return fmt.Errorf("mount %q: %w", at, err)
		}
	}
	if err := unix.Mount("cgroup2", at, "cgroup2", flags|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount %q: %w", at, err)
	}
	return nil
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", os.NewSyscallError("uname", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
