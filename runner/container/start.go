// Package container starts PID 1 of a sandbox, with libcontainer or, on a machine without namespaces, without it.
//
//	st := &container.Starter{Boot: boot, State: dir}
//	init, err := st.Start(container.Config{ID: id, Root: …}, show)
//	// init.Socket: the conversation with PID 1, see package pid1api
//	defer func() { init.Kill(); init.Wait() }()
//
// The process starts as libcontainer's half of demesne-runner ([Inside]), while the runner still mounts the tree, and
// becomes demesne-init. libcontainer makes the namespaces, maps the ids, changes the root and drops capabilities.
// Which capabilities remain, and which restrictions demesne-init then applies to itself, are decided here as pure
// functions of the Spec: config, [Setup], [MinimalSetup], [PrivilegesOf].
//
// A machine may refuse a part: a new /proc, or a host name. Start then leaves that out, also later, see [Starter]. The package does not make the control group, the tree or the network: the caller
// provides them. If the runner is killed, PID 1's socket closes, and PID 1 ends.
package container

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// Starter starts the PID 1s of one runner. It is safe for concurrent use. Set the exported fields before.
type Starter struct {
	Boot  api.Boot
	State string // libcontainer's state directory
	Types []any  // values of types that encoding/json will need, see learnTypes

	learn sync.Once
	mu    sync.Mutex // guards the fields below
	level fallback   // the last level that worked here
	why   error      // why no better level works
}

// Config describes a sandbox to [Starter.Start].
type Config struct {
	ID        string
	Root, Dev string   // the directories where PID 1 finds its tree and its /dev
	NetNS     *os.File // its network namespace
	Spec      runner.Spec
}

// Init is a started PID 1. It waits for the first message on Socket.
type Init struct {
	PID     int
	Socket  *ipc.Conn
	Mounts  *os.File // its mount namespace; nil without namespaces
	Start   Start    // the fallback level
	process *os.Process
	state   string
}

// Start starts PID 1 on the best fallback level that works on this machine. show makes the tree appear at Root and
// Dev. Start calls it beside libcontainer, once for each level that it tries.
func (st *Starter) Start(c Config, show func() error) (*Init, error) {
	st.mu.Lock()
	level, why := st.level, st.why
	st.mu.Unlock()
	for {
		init, err := st.startOn(level, c, show)
		if err == nil {
			st.mu.Lock()
			st.level, st.why = level, why
			st.mu.Unlock()
			init.Start = Start{ProcBound: level.procBound, NoHostname: level.noHostname, Why: why}
			return init, nil
		}
		if err := show(); err != nil {
			return nil, err
		}
		why = cmp.Or(why, err)
		var ok bool
		if level, ok = level.after(err); !ok {
			// The code refers users to demesne check: the machine does not grant a namespace.
			return nil, ipc.Errorf(ipc.CodeRequirement, "%w", err)
		}
	}
}

// oneProcessor is the environment of PID 1 and, before it, of libcontainer's half of the same process. Both do one
// thing at a time, and Landlock, seccomp and capabilities must be applied to every thread.
var oneProcessor = []string{"GOMAXPROCS=1"}

func (st *Starter) startOn(level fallback, c Config, show func() error) (*Init, error) {
	netPath := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(c.NetNS.Fd()))
	lc, err := libcontainer.Create(st.State, c.ID, config(c.ID, c.Root, c.Dev, netPath, st.Boot, c.Spec, level))
	if err != nil {
		return nil, err
	}
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	p := &libcontainer.Process{
		Init: true, Args: []string{initPath}, Cwd: "/", Env: oneProcessor,
		ExtraFiles: []*os.File{theirs},                   // descriptor fdInit
		LogLevel:   strconv.Itoa(int(logrus.GetLevel())), // otherwise it sends every log line to the runner
	}
	init := &Init{state: filepath.Join(st.State, c.ID)}
	go st.learn.Do(st.learnTypes)
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		letIn(ours, show())
	}()
	err = lc.Run(p)
	<-shown
	if err == nil {
		init.PID, err = p.Pid()
	}
	if err == nil {
		if init.Mounts, err = os.Open("/proc/" + strconv.Itoa(init.PID) + "/ns/mnt"); err != nil {
			p.Signal(unix.SIGKILL)
			p.Wait()
		}
	}
	if err != nil {
		ours.Close()
		init.Forget()
		return nil, err
	}
	init.Socket = ipc.NewConn(ours)
	init.process, _ = os.FindProcess(init.PID) // never fails; p would retain libcontainer's data, a tenth of the runner's memory per sandbox
	return init, nil
}

// Kill kills PID 1. Its namespace ends with it.
func (i *Init) Kill() { i.process.Kill() }

// Wait waits for the end of PID 1 and releases its mount namespace. Call it after Kill or after closing Socket, not
// earlier: Wait takes a thread, and the socket already reports PID 1's end.
func (i *Init) Wait() {
	i.process.Wait()
	if i.Mounts != nil {
		// Held until here: the unmounts wait for an RCU grace period of the whole machine, which must not delay the
		// end of PID 1.
		go i.Mounts.Close()
	}
}

// Forget removes libcontainer's record of the sandbox.
func (i *Init) Forget() { os.RemoveAll(i.state) }

// learnTypes makes encoding/json inspect the types to come while libcontainer waits for the process it starts. This
// saves 2 to 5 % of a cold run in a runner's first sandbox.
func (st *Starter) learnTypes() { ipc.Prewarm(append([]any{libcontainer.State{}}, st.Types...)...) }

// StartMinimal starts demesne-init without namespaces, as a subreaper. When its socket closes, it kills the processes
// that it started, and exits.
func (st *Starter) StartMinimal() (*Init, error) {
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(st.Boot.Init)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	return &Init{PID: cmd.Process.Pid, Socket: ipc.NewConn(ours), process: cmd.Process}, nil
}
