package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/given"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/store"
)

// initTimeout bounds the conversation with PID 1 while a sandbox is made. It catches a stalled machine and is not a
// time budget.
const initTimeout = 30 * time.Second

// started is the outcome of starting PID 1.
type started struct {
	rung fallback
	why  error // why no better level works
}

// start starts PID 1 on the best fallback level that works on this machine.
func (s *sandbox) start(ns *netns.NS, tree *laying) (started, error) {
	if err := s.makePlace(); err != nil {
		return started{}, err
	}
	s.e.mu.Lock()
	first, why := s.e.fallback, s.e.fallbackWhy
	s.e.mu.Unlock()
	for i := first; ; i++ {
		err := s.startOn(fallbacks[i], ns, tree)
		if err == nil {
			s.e.mu.Lock()
			s.e.fallback, s.e.fallbackWhy = i, why
			s.e.mu.Unlock()
			return started{fallbacks[i], why}, nil
		}
		if err := tree.show(s, ns); err != nil {
			return started{}, err
		}
		if why == nil {
			why = err
		}
		if i == len(fallbacks)-1 {
			return started{}, lacking(why)
		}
	}
}

// lacking returns the error for a namespace that the machine does not grant. Its code refers users to demesne
// check.
func lacking(err error) error { return ipc.Errorf(ipc.CodeRequirement, "%w", err) }

// oneProcessor is the environment of PID 1 and, before it, of libcontainer's half of the same process. Both do one
// thing at a time, and Landlock, seccomp and capabilities must be applied to every thread.
var oneProcessor = []string{"GOMAXPROCS=1"}

func (s *sandbox) startOn(r fallback, ns *netns.NS, tree *laying) error {
	state := s.e.containers()
	netPath := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(ns.File.Fd()))
	c, err := libcontainer.Create(state, s.id, config(s.id, s.root(), s.dev(), netPath, s.e.boot, s.spec, r))
	if err != nil {
		return err
	}
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	p := &libcontainer.Process{
		Init: true, Args: []string{initPath}, Cwd: "/", Env: oneProcessor,
		ExtraFiles: []*os.File{theirs},                   // descriptor fdGuest
		LogLevel:   strconv.Itoa(int(logrus.GetLevel())), // otherwise it sends every log line to the runner
	}
	remove := func() { os.RemoveAll(filepath.Join(state, s.id)) }
	go s.e.types.Do(learnTypes)
	told := make(chan struct{})
	go func() {
		defer close(told)
		letIn(ours, tree.show(s, ns))
	}()
	err = c.Run(p)
	<-told
	if err != nil {
		ours.Close()
		remove()
		return err
	}
	pid, err := p.Pid()
	if err != nil {
		ours.Close()
		remove()
		return err
	}
	// Held until PID 1 has ended. The unmounts wait for an RCU grace period of the whole machine, which must not
	// delay the end of PID 1.
	s.mounts, err = os.Open("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	if err != nil {
		ours.Close()
		p.Signal(unix.SIGKILL)
		p.Wait()
		remove()
		return err
	}
	s.pid = pid
	s.guest = ipc.NewPeer(ipc.NewConn(ours), s.fromGuest)
	go s.serveGuest()
	first, _ := os.FindProcess(pid) // never fails; p would retain libcontainer's data, a tenth of the runner's memory per sandbox
	s.undo.add(func() {
		s.guest.Close()
		s.group.Kill()
		first.Kill()
		// Not earlier: Wait takes a thread, and the socket already reports PID 1's end.
		first.Wait()
		go s.mounts.Close()
	})
	s.undoLate(remove)
	return nil
}

// learnTypes makes encoding/json inspect the types to come, libcontainer's and the runner's, while libcontainer
// waits for the process it starts. This saves 2 to 5 % of a cold run in a runner's first sandbox.
func learnTypes() {
	ipc.Prewarm(libcontainer.State{}, pid1api.Setup{}, pid1api.Facts{}, pid1api.Exec{}, pid1api.Executed{}, pid1api.Exited{},
		api.Created{}, api.ExecRequest{}, api.ExecReply{}, api.ExecTarget{}, runner.Result{}, store.HistoryRecord{}, given.Record{})
}

// serveGuest serves PID 1's messages and ends the sandbox when PID 1 ends by itself.
func (s *sandbox) serveGuest() {
	s.guest.Serve()
	<-s.built
	s.mu.Lock()
	ending := s.ending
	s.mu.Unlock()
	if ending {
		return
	}
	if s.group.OOMKilled() {
		s.terminate(runner.OOM, "the memory limit was reached")
		return
	}
	s.terminate(runner.Lost, "PID 1 of the sandbox was killed")
}

// setUpGuest makes PID 1 restrict itself and returns what PID 1 verified.
func (s *sandbox) setUpGuest(setup pid1api.Setup) (pid1api.Facts, error) {
	var facts pid1api.Facts
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	if err := s.guest.Call(ctx, pid1api.OpSetup, setup, nil, &facts); err != nil {
		return facts, fmt.Errorf("restrict sandbox: %w", err)
	}
	return facts, nil
}

// guestSetup returns the restrictions that PID 1 applies to itself. It is pure.
func guestSetup(spec runner.Spec, b api.Boot) pid1api.Setup {
	setup := plainSetup()
	if spec.Nesting {
		// With any Landlock filesystem rule mounts are denied for good (landlock(7)). Nested sandbox tools need
		// openat2(2), whose mode a seccomp filter cannot read.
		setup = pid1api.Setup{Scoped: true, Seccomp: pid1api.SeccompOptions{Nesting: true}, KeepCaps: []uint{capSetfcap}}
	}
	if spec.Rootfs != nil {
		setup.RootCaps = rootCaps
		setup.Seccomp.FakeRoot = b.OneID()
		// Packages contain set-user-ID files. They have no effect on a nosuid mount. The end of the sandbox finds
		// those in /out and /workspace.
		setup.Seccomp.NoSUID = setup.Seccomp.NoSUID && spec.Exposed
	}
	return setup
}

func plainSetup() pid1api.Setup {
	return pid1api.Setup{
		Landlock: []pid1api.PathRule{
			{Path: ipc.Bytes("/"), Access: pid1api.AccessReadWrite},
			{Path: ipc.Bytes("/dev/pts"), Access: pid1api.AccessDevice},
			{Path: ipc.Bytes("/dev/tty"), Access: pid1api.AccessDevice},
		},
		Scoped:  true,
		Seccomp: pid1api.SeccompOptions{NoSUID: true},
	}
}
