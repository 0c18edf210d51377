package sandbox

import (
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"

	"sync"
	"time"
)

// commands is the part of a sandbox that knows its commands. The sandbox's mu guards it.
type commands struct {
	next    uint64
	primary bool                  // the command that a one-shot sandbox ends with has been started
	running map[uint64]*Execution // nil after the end
	user    *uint32               // of the first command, and of all others until noteUser
	last    *runner.Result
}

// Execution is a command in a sandbox, from its start until its result is read.
type Execution struct {
	s       *Sandbox
	id      uint64
	started time.Time
	tty     *terminal[Caller] // nil: it has none
	blocked []runner.Blocked  // denied before it started
	primary bool              // a one-shot sandbox ends with this command
	alone   bool              // nothing that it started may outlive it
	asker   Caller            // receives the notice of the command's end
	tag     uint64            // tag of that notice; 0: no notice
	begun   bool              // PID 1 has started it; guarded by the sandbox's mu

	once   sync.Once
	done   chan struct{} // closed when result is set
	result *runner.Result

	mu      sync.Mutex // guards the fields below
	timer   *time.Timer
	timeout bool
	limit   time.Duration // --timeout; 0: none
}

// Sandbox returns the sandbox of x.
func (x *Execution) Sandbox() *Sandbox { return x.s }

// Done is closed when x has a result.
func (x *Execution) Done() <-chan struct{} { return x.done }

// Result returns the result of x. Call it after Done.
func (x *Execution) Result() *runner.Result { return x.result }

// Results holds the commands of live sandboxes, and the last ones that ended. The zero value is empty. It is safe for
// concurrent use: mu guards the fields after it.
type Results struct {
	mu    sync.Mutex
	all   map[execKey]*Execution
	ended []execKey // oldest first
}

type execKey struct {
	sandbox string
	exec    uint64
}

// endedMax is the number of ended commands whose results are kept for late requests.
const endedMax = 1024

func (r *Results) add(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[execKey]*Execution{}
	}
	r.all[execKey{x.s.id, x.id}] = x
}

func (r *Results) remove(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, execKey{x.s.id, x.id})
}

// end records that x has ended, and drops the oldest results.
func (r *Results) end(x *Execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, execKey{x.s.id, x.id})
	for len(r.ended) > endedMax {
		delete(r.all, r.ended[0])
		r.ended = r.ended[1:]
	}
}

// Find returns a command, running or ended.
func (r *Results) Find(t api.ExecTarget) (*Execution, error) {
	r.mu.Lock()
	x := r.all[execKey{t.Sandbox, t.Exec}]
	r.mu.Unlock()
	if x == nil {
		return nil, ipc.Errorf(ipc.CodeNoSuchCommand, "find command %d of sandbox %q: no such command", t.Exec, t.Sandbox)
	}
	return x, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
