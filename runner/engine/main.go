// Package engine is demesne-runner: it makes sandboxes, runs commands in them and
// takes them down again.
//
// One process serves many callers and many sandboxes. It lives in an outer user
// namespace in which it has all capabilities, in a mount namespace of its own, and
// in the host's network and pid namespaces. The way of one run:
//
//	serve.go      callers; calls.go  what they say, one goroutine a call; boxes.go  who has which sandbox
//	create.go     what a Spec must be to become a sandbox
//	raise.go      the order of making one; package receipt says what holds then; end.go  its end
//	tree.go       its mounts; laying.go  while PID 1 starts; image.go, hold.go  of an image; shared.go  its caller's
//	start.go      PID 1, on the best rung that works here
//	config.go     Spec → libcontainer configuration, pure
//	egress.go     what a sandbox may have of the network; pure
//	network.go    its network: the ways in, by package inlet, the way out, by wayout; ask.go changes it
//	exec.go       a command in a sandbox; environ.go  as whom and with what; result.go  how it ended
//	terminal.go   its terminal; attach.go  who has that
//	spare.go      sandboxes made in advance; spares.go  which, and how many
//	keep.go       a sandbox that outlives its processes: its directory; life.go  and its clock
//	fork.go       one that starts with another's files; busy.go  while that runs; idle.go  one that nobody uses
//	restart.go    one that has files and no processes; key.go  one that is found by a word
//	linger.go     how long the runner stays for the next caller
//	diff.go       what one made of its image; layer.go  the same as layers of another
//	minimal.go    one without namespaces, where the machine forbids them
//
// What holds a sandbox together is the kernel: PID 1 ends when the guest socket
// does, its pid namespace with it, and mounts and network namespace with their last
// user. Nothing here has to run for a sandbox to end.
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

// Engine is a runner's state.
type Engine struct {
	boot   api.Boot
	dir    string // private tmpfs: rootfs trees and libcontainer's state
	host   *limits.Host
	kernel string
	state  *store.History
	life   *os.File // what the reaper waits on
	clock  *given.Clock
	ready  chan struct{} // closed when the above is there, or broken
	broken error
	ahead  ahead

	mu          sync.Mutex
	boxes       map[string]*sandbox
	recent      map[execKey]*execution // of live sandboxes, and the last ones that ended
	ended       []execKey              // oldest first
	fallback    int                    // of rungs: the first that worked here
	fallbackWhy error                  // why not a better one
	callers     int
	keys        keyLocks
	types       sync.Once // see learnTypes
	spares      spares
	turns       chan struct{}     // taken by each sandbox that is being raised for a caller
	init        string            // see initProgram
	proxy       proxyclient.Proxy // of all sandboxes
	kept        *store.Store      // see keeper
	sweeping    sync.Mutex        // of sweep
	linger      linger
	idle        chan struct{} // closed when there is nothing left to serve
	accepting   bool
}

// Main runs until nobody needs the runner any more and returns its exit code.
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

// lifeline is our end of the pipe the reaper waits on.
func lifeline() (*os.File, error) {
	if os.Getenv(userns.EnvControl) == "" {
		return nil, errors.New("start: to be started by demesne, not by hand")
	}
	for _, name := range []string{userns.EnvControl, userns.EnvClean, userns.EnvMode, userns.EnvLock} {
		os.Unsetenv(name)
	}
	return os.NewFile(userns.FDLife, "life"), nil
}

// askReaper has the reaper remove the sockets of sandboxes that have ended.
func (e *Engine) askReaper() { e.life.Write([]byte("t")) }

// serveAll says whether nothing is left for the reaper.
func serveAll(life *os.File) (clean bool, _ error) {
	os.Setenv("GOMAXPROCS", "1")       // for libcontainer's children; we have started already
	logrus.SetLevel(logrus.ErrorLevel) // libcontainer warns of what the receipt tells
	e := &Engine{boxes: map[string]*sandbox{}, recent: map[execKey]*execution{}, idle: make(chan struct{}), ready: make(chan struct{})}
	e.life, e.clock = life, given.NewClock()
	e.accepting, e.callers = true, 1 // who is waited for
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
	e.spares.most = e.boot.Spares
	go e.watchProgram()
	// Callers are greeted meanwhile: they have something to prepare, too.
	go func() { e.broken = e.setUp(); close(e.ready) }()
	unix.SetNonblock(api.FDConn, true)
	unix.SetNonblock(api.FDListener, true)
	// Callers see as their peer the process that called listen(2) last: not the one that made the socket.
	unix.Listen(api.FDListener, api.Backlog)
	go e.accept(os.NewFile(api.FDListener, "listener"))
	e.greet(ipc.NewConn(os.NewFile(api.FDConn, "caller")))
	e.leave()
	<-e.idle
	<-e.ready
	e.spares.close()
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

// setUp does what is done once: finds cgroups, mounts the private tmpfs and, for
// libcontainer, a cgroup2 of our own namespace.
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
	// These open what they need of /sys/fs/cgroup before that is covered.
	e.host = limits.Open(e.boot.Key, len(e.boot.CgroupAt) > 0)
	limits.Default() // it remembers
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

// learnPidfds has package os see whether pidfds work, for which it starts a process, while there is none to
// start yet.
func learnPidfds() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Release()
	}
}

// mountOwn makes our mount namespace ours, and the private tmpfs in it.
func (e *Engine) mountOwn() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves: %w", err)
	}
	// libcontainer reads /proc through a copy of the mount where it can have one, and
	// each copy's end waits for the whole machine (RCU). Nobody but us mounts here, so it
	// gains nothing by that; it does without where copies are refused, and so does whatever
	// binds a directory that has /proc below it.
	unix.Mount("", "/proc", "", unix.MS_UNBINDABLE, "")
	if err := unix.Mount("demesne", e.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0700"); err != nil {
		return fmt.Errorf("mount %q: %w", e.dir, err)
	}
	// Unbindable: a caller's directory that contains it is bound without it, or one
	// sandbox would see the trees of the others.
	if err := unix.Mount("", e.dir, "", unix.MS_UNBINDABLE, ""); err != nil {
		return fmt.Errorf("make %q unbindable: %w", e.dir, err)
	}
	// Both are mounts of their own and so not unbindable. libcontainer's state is a layer of
	// the overlay that seals our own program against being overwritten from inside
	// (CVE-2019-5736), or libcontainer would copy the program for each sandbox.
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

// containers is libcontainer's state directory.
func (e *Engine) containers() string { return filepath.Join(e.dir, "libcontainer") }

// shown is where trees appear in the mount namespaces of sandboxes, also of those that have one already.
func (e *Engine) shown() string { return filepath.Join(e.dir, "shown") }

// mountCgroup2 gives libcontainer the cgroup mount it insists on, also where the
// host has none it could see (nested) or a v1 hierarchy. It is of our own cgroup
// namespace and only ever read.
func mountCgroup2() error {
	const at = "/sys/fs/cgroup"
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Read-only, or libcontainer would make cgroups that package limits knows not of.
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
