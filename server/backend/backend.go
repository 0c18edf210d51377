// Package backend is the interface between the HTTP APIs and what runs sandboxes, which server/apibackend implements.
// It has types alone.
package backend

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"demesne/runner"
	"demesne/runner/tree"
)

// Errors that a Backend's errors match, so that an API can choose its status.
var (
	ErrNotFound = errors.New("no such sandbox")
	ErrInvalid  = errors.New("invalid request")
	ErrBusy     = errors.New("no room for another sandbox")
	// ErrQuota means that the caller, or the user, has as many sandboxes as allowed: there is room once one is removed.
	ErrQuota error = busy("too many sandboxes")
	// ErrQueueFull means that too many commands wait: the caller should try again later.
	ErrQueueFull error = busy("the queue is full: too many commands wait")
	// ErrUnrecorded means that nothing may start now, because the audit log would not have it.
	ErrUnrecorded error = busy("nothing starts now, because the audit log cannot be written")
	// ErrConflict is an ErrInvalid whose cause is what exists: a name that is in use, or the state of a sandbox.
	ErrConflict = fmt.Errorf("%w: conflict", ErrInvalid)
	// ErrRegistry means that an image's registry did not answer, or answered with an error of its own.
	ErrRegistry = errors.New("the registry does not answer")
)

// TooLarge is the text of an answer to a request whose body is too large.
func TooLarge(most int64) string { return fmt.Sprintf("the body has more than %d bytes", most) }

// busy is the text of an ErrBusy with another reason.
type busy string

func (b busy) Error() string      { return string(b) }
func (busy) Is(target error) bool { return target == ErrBusy }

// Granted is what a caller gets who asks for more than the operator allows. 0 is no bound.
type Granted struct {
	Limits  runner.Limits
	Timeout time.Duration // of a command
}

// Reduced returns a sentence for each limit, and for the time, that was asked for and that the operator's bounds reduce.
func (g Granted) Reduced(asked runner.Limits, timeout time.Duration) (said []string) {
	for _, row := range []struct {
		field      string
		asked, got float64
	}{
		{"limits.memory", float64(asked.Memory), float64(g.Limits.Memory)}, {"limits.cpus", asked.CPUs, g.Limits.CPUs},
		{"limits.pids", float64(asked.PIDs), float64(g.Limits.PIDs)}, {"limits.disk", float64(asked.Disk), float64(g.Limits.Disk)},
		{"timeout_ms", float64(timeout.Milliseconds()), float64(g.Timeout.Milliseconds())},
	} {
		if row.asked > 0 && row.got > 0 && row.got < row.asked {
			plain := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
			said = append(said, fmt.Sprintf("%s: reduced from %s to %s, the operator's maximum", row.field, plain(row.asked), plain(row.got)))
		}
	}
	return said
}

// Backend makes and keeps persistent sandboxes. Each has a name, which is unique. It is safe for concurrent use. A
// sandbox outlives the server.
type Backend interface {
	Create(context.Context, Create) (Sandbox, error)
	// Grants returns what a sandbox has whose caller asks for limits, and a command that asks for a time.
	Grants(ctx context.Context, l runner.Limits, timeout time.Duration) Granted
	// Open opens a sandbox. It starts the processes of a stopped one and leaves a paused one paused.
	Open(ctx context.Context, name string) (Sandbox, error)
	List(context.Context) ([]runner.Info, error)
	Remove(ctx context.Context, name string) error
	// Pause stops the processes and keeps them in memory. The next command resumes them.
	Pause(ctx context.Context, name string) error
	// Stop ends the processes and keeps the files.
	Stop(ctx context.Context, name string) error
	// Fork makes a sandbox with the files of another one or of a snapshot, and none of its processes.
	Fork(ctx context.Context, from, name string) error
	Snapshot(ctx context.Context, from, name string) error
	// Reach replaces the rules of a sandbox's network. It fails for a sandbox that was made without any.
	Reach(ctx context.Context, name string, n Network) error
	Usage(ctx context.Context, name string) (runner.Usage, error)
	// HasImage reports whether a name means an image that is here or can be pulled.
	HasImage(ctx context.Context, name string) bool
	// Build builds an image from the Containerfile in a directory. It writes its progress to log.
	Build(ctx context.Context, b Build, log io.Writer) error
	// Blobs returns the size of each blob of an image that is here, by digest.
	Blobs(ctx context.Context, name string) (map[string]int64, error)
	// Discard removes an image that Build made or failed to make, and all that only this build left. It returns an
	// ErrConflict while a sandbox or another build uses the image, and nil without such an image.
	Discard(ctx context.Context, name string) error
}

// Create describes a new sandbox.
type Create struct {
	Name    string
	Image   string // empty: the operator's default
	Built   bool   // Image is one that Build made
	Limits  runner.Limits
	Network Network
	Mounts  []runner.Mount
	Env     []string        // of every command, K=V
	Secrets []string        // names of stored secrets of the caller's namespace
	TTL     runner.Duration // 0: the longest
}

// Network says what a sandbox may reach. The zero value: nothing, and that cannot be changed later.
type Network struct {
	Open        bool     // everything that the operator allows
	Mode        string   // in place of Open: a mode, within the operator's
	Allow, Deny []string // rules of package policy
	Ask         bool     // a connection without a rule waits for an answer
	// Secrets are credentials for hosts. A sandbox gets them when it is made; Reach ignores them.
	Secrets []runner.Secret
}

// Build describes an image to build.
type Build struct {
	Dir           string // has the files and the Containerfile
	Containerfile string // path
	Name          string // of the image
	MaxLayers     int64  // bytes of new layers together; 0: no bound
}

// Sandbox is a live sandbox.
type Sandbox interface {
	// Start starts a command; its streams are the caller's pipes.
	Start(context.Context, runner.Command) (Process, error)
	// Tree performs an operation on files as a user of the sandbox; nil: the sandbox's own. Relative paths begin at dir.
	// from writes the bytes of a Put, and to reads those of a Get or the events of a Watch; both may be nil. Everything that
	// is read comes from the sandbox and is untrusted.
	Tree(ctx context.Context, user *runner.User, dir string, t tree.Request, from func(io.Writer) error, to func(*tree.Answer, *bufio.Reader) error) (*tree.Answer, error)
	// Dial connects to a port of the sandbox's loopback.
	Dial(ctx context.Context, port uint16) (io.ReadWriteCloser, error)
	// Kernel starts a kernel.
	Kernel(context.Context, KernelOptions) (Kernel, error)
}

// Process is a command in a sandbox.
type Process interface {
	Number() int        // its pid in the sandbox
	Terminal() *os.File // the controlling end, which the caller closes; nil: it has none
	// Shown returns a reader of the command's output, in which the values of the sandbox's secrets are blanked. It holds
	// nothing back for long. Its Close does not close from.
	Shown(from io.Reader) io.ReadCloser
	Signal(syscall.Signal) error
	Resize(runner.Winsize) error
	Wait(context.Context) (*runner.Result, error)
}

// KernelOptions describes a kernel.
type KernelOptions struct {
	Language string
	Prelude  string // code that every new process of the kernel executes first, without outputs; may be empty
	Dir      string
	User     *runner.User
	Env      []string // K=V
}

// Kernel executes code, and keeps its state between executions.
type Kernel interface {
	// Execute calls emit with each output. The end of ctx interrupts the code. What it returns and emits comes from the
	// sandbox. If emit is nil, the code is the server's own: its outputs are dropped, and it is not counted.
	Execute(ctx context.Context, code string, emit func(Output)) (*Executed, error)
	Restart(context.Context) error
	Close()
}

// Output is one output of an execution. One field is set.
type Output struct {
	Stdout, Stderr string
	Display        map[string]json.RawMessage // by MIME type
	Main           bool                       // Display is the value of the last expression
}

// Executed is the end of an execution.
type Executed struct {
	Count                  int
	Name, Value, Traceback string // of an exception; Name is empty without one
}
