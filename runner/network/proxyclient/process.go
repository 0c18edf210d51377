package proxyclient

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner/ipc"
)

// FDRunner is the descriptor on which demesne-proxy finds its socket.
const FDRunner = 3

// process is one demesne-proxy process.
type process struct {
	peer  *ipc.Peer
	pid   int
	began time.Time
	after int           // number of predecessors in a row that died at once
	gone  chan struct{} // closed when the process has ended and been reaped
	noted ledgers       // complete when peer is done
}

// start executes program. From the runner's environment the process gets only GODEBUG, which the Go runtime and tests
// read.
func start(program *os.File, after int, handle func(*ipc.Peer, *ipc.Message)) (*process, error) {
	ours, theirs, err := ipc.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		ours.Close()
		return nil, err
	}
	defer null.Close()
	p := &process{began: time.Now(), after: after, gone: make(chan struct{})}
	if err := p.execute(program, null, theirs); err != nil {
		ours.Close()
		return nil, fmt.Errorf("execute %q: %w", program.Name(), err)
	}
	p.peer = ipc.NewPeer(ipc.NewConn(ours), func(m *ipc.Message) { p.take(m, handle) })
	go p.peer.Serve()
	return p, nil
}

// take records notes in order of arrival and passes other messages to handle.
func (p *process) take(m *ipc.Message, handle func(*ipc.Peer, *ipc.Message)) {
	if m.Op != OpNote {
		handle(p.peer, m)
		return
	}
	defer m.Close()
	var n Note
	if m.Decode(&n) == nil {
		p.noted.note(n)
	}
}

// execute starts the program from a thread that then waits for its end. The kernel treats the end of that thread as
// the end of the parent (PR_SET_PDEATHSIG, prctl(2)).
func (p *process) execute(program, null, socket *os.File) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		pid, err := syscall.ForkExec(fsutil.FDPath(int(program.Fd())), []string{"demesne-proxy"}, &syscall.ProcAttr{
			Dir: "/", Env: environ(), Files: []uintptr{null.Fd(), null.Fd(), 2, socket.Fd()},
			Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
		})
		p.pid = pid
		started <- err
		if err != nil {
			return
		}
		for {
			if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
				break
			}
		}
		close(p.gone)
	}()
	return <-started
}

func environ() []string {
	if v, ok := os.LookupEnv("GODEBUG"); ok {
		return []string{"GODEBUG=" + v}
	}
	return []string{}
}

// end ends the process and waits for its exit, with SIGKILL after 5 s.
func (p *process) end() {
	p.peer.Close()
	late := time.AfterFunc(5*time.Second, func() { unix.Kill(p.pid, unix.SIGKILL) })
	<-p.gone
	late.Stop()
}

// tries returns the number of processes that died at once, in a row, before p. It returns 0 if p lived longer than a
// second.
func (p *process) tries() int {
	if time.Since(p.began) > time.Second {
		return 0
	}
	return p.after
}
