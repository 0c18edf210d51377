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
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/store"
)

// initTimeout bounds the conversation with PID 1 while a sandbox is made. It is for
// a machine that stalls, not a budget.
const initTimeout = 30 * time.Second

// started is how PID 1 came up.
type started struct {
	rung fallback
	why  error // why not a better rung
}

// start starts PID 1 on the best rung that works on this machine.
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

// lacking is an error of a namespace that the machine does not give: demesne check says what to do.
func lacking(err error) error { return ipc.Errorf(ipc.CodeRequirement, "%w", err) }

// oneProcessor is for PID 1 and, before it, libcontainer's half of the same process:
// they do one thing at a time, and each thread less is one that Landlock, seccomp
// and capabilities need not be told to.
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
		LogLevel:   strconv.Itoa(int(logrus.GetLevel())), // or it sends us all it has to say, line by line
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
	// Held until PID 1 has ended, so that taking the mounts down, for which the whole
	// machine is waited (RCU), comes after that and not before.
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
	first, _ := os.FindProcess(pid) // never fails; p would keep what libcontainer made, a tenth of all that a sandbox takes here
	s.undo.add(func() {
		s.guest.Close()
		s.group.Kill()
		first.Kill()
		// Only here: waiting takes a thread, and PID 1's end is told by its socket.
		first.Wait()
		go s.mounts.Close()
	})
	s.undoLate(remove)
	return nil
}

// learnTypes has package json look at the types that are still to come, libcontainer's
// and ours, while libcontainer waits for the process it starts: in a runner's first sandbox,
// 2 to 5 % of a cold run.
func learnTypes() {
	ipc.Prewarm(libcontainer.State{}, pid1api.Setup{}, pid1api.Facts{}, pid1api.Exec{}, pid1api.Executed{}, pid1api.Exited{},
		api.Created{}, api.ExecRequest{}, api.ExecReply{}, api.ExecTarget{}, runner.Result{}, store.HistoryRecord{})
}

// serveGuest notices when PID 1 goes away by itself.
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

// setUpGuest has PID 1 restrict itself and returns what it verified.
func (s *sandbox) setUpGuest(setup pid1api.Setup) (pid1api.Facts, error) {
	var facts pid1api.Facts
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	if err := s.guest.Call(ctx, pid1api.OpSetup, setup, nil, &facts); err != nil {
		return facts, fmt.Errorf("restrict sandbox: %w", err)
	}
	return facts, nil
}

// guestSetup is what PID 1 is told to do to itself. It is pure.
func guestSetup(spec runner.Spec, b api.Boot) pid1api.Setup {
	setup := plainSetup()
	if spec.Nesting {
		// Any filesystem rule would forbid mounts for ever (landlock(7)). A sandbox
		// maker needs openat2(2), whose mode a filter cannot see.
		setup = pid1api.Setup{Scoped: true, Seccomp: pid1api.SeccompOptions{Nesting: true}, KeepCaps: []uint{capSetfcap}}
	}
	if spec.Rootfs != nil {
		setup.RootCaps = rootCaps
		setup.Seccomp.FakeRoot = b.OneID()
		// Packages have set-user-ID files. They are of no use on a nosuid mount, and in
		// /out and /workspace they are found when the sandbox ends.
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
