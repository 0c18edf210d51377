package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"demesne/images"
	"demesne/kernels"
	"demesne/runner"
	"demesne/runner/fileops"
	"demesne/session"
	"demesne/session/operator"
)

// TooLarge is the text of an answer to a request whose body is too large.
func TooLarge(most int64) string { return fmt.Sprintf("the body has more than %d bytes", most) }

// Sandboxes makes and keeps persistent sandboxes. Each has a name, which is unique. It is safe for concurrent use. A
// sandbox outlives the server.
type Sandboxes interface {
	// Create makes a persistent sandbox, within the operator's bounds. Its image is the one that r.Create.Image.Given names.
	// built means that Build made it.
	Create(ctx context.Context, r session.Request, built bool) (Sandbox, error)
	// Grants returns the limits and the timeout that a caller gets who asks for l and timeout.
	Grants(ctx context.Context, l runner.Limits, timeout time.Duration) operator.Granted
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
	// Widest returns the mode of a network with everything that the operator allows.
	Widest() string
	// Reach replaces the rules of a sandbox's network. It fails for a sandbox that was made without any.
	Reach(ctx context.Context, name string, e session.Egress) error
	Usage(ctx context.Context, name string) (runner.Usage, error)
	// HasImage reports whether a name means an image that is here or can be pulled.
	HasImage(ctx context.Context, name string) bool
	// Build builds an image from the Containerfile in a directory. It writes its progress to log.
	Build(ctx context.Context, b Build, log io.Writer) error
	// PullPrivate pulls a base for Build that only a login may pull. It writes its progress to log. Discard removes it.
	PullPrivate(ctx context.Context, p Private, log io.Writer) error
	// Blobs returns the size of each blob of an image that is here, by digest.
	Blobs(ctx context.Context, name string) (map[string]int64, error)
	// Discard removes an image that Build made or failed to make, and all that only this build left. It returns an
	// ErrConflict while a sandbox or another build uses the image, and nil without such an image.
	Discard(ctx context.Context, name string) error
}

// Bounds of builds over HTTP.
const (
	BuildTime  = 2 * time.Hour
	MaxContext = 4 << 30 // bytes of the uploaded files of one build
	MaxBuilds  = 100     // of one namespace that wait or run
)

// Build describes an image to build.
type Build struct {
	Dir           string // has the files and the Containerfile
	Containerfile string // path
	Name          string // of the image
	MaxLayers     int64  // bytes of new layers together; 0: no bound
}

// Private is an image of a registry, and the login for it, which is used for one pull and is nowhere kept.
type Private struct {
	Image string
	Login images.Login
	As    string // the only name that the image gets
}

// Sandbox is a live sandbox.
type Sandbox interface {
	// Made describes a sandbox that Create made. Its receipt has only the level. It is nil if the runner did not tell.
	Made() *runner.Info
	// Start starts a command; its streams are the caller's pipes.
	Start(context.Context, runner.Command) (Process, error)
	// Tree performs an operation on files as a user of the sandbox; nil: the sandbox's own. Relative paths begin at dir.
	// from writes the bytes of a Put, and to reads the bytes of a Get or the events of a Watch; both may be nil. Everything
	// that is read comes from the sandbox and is untrusted.
	Tree(ctx context.Context, user *runner.User, dir string, t fileops.Request, from func(io.Writer) error, to func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error)
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
	Execute(ctx context.Context, code string, emit func(kernels.Output)) (*kernels.Result, error)
	Restart(context.Context) error
	Close()
}
