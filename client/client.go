package client

import (
	"context"
	"io"
	"iter"
	"time"
)

// Client runs commands in sandboxes. Its methods, and those of the interfaces that it returns, may be called
// concurrently. sandbox is the id or the name of a persistent sandbox.
type Client interface {
	// Run makes a sandbox, runs a command in it, removes the sandbox, and returns the result.
	Run(context.Context, RunRequest) (*Result, error)
	// RunStream is Run, and copies the output while the command runs.
	RunStream(context.Context, RunRequest, Streams) (*Result, error)

	Sandboxes() Sandboxes
	Files(sandbox string) Files
	Jobs() Jobs
	Agents() Agents
	Outputs() Outputs
	Images() Images
	Egress() Egress
	Audit() Audit
	Host() Host

	// Events yields what happens to the caller's sandboxes, until ctx ends or the loop is left. An error is the last thing
	// that it yields.
	Events(context.Context, EventFilter) iter.Seq2[Event, error]
	// Server describes the server and the caller.
	Server(context.Context) (*Server, error)
	// Queue counts the commands that run and wait.
	Queue(context.Context) (*Queue, error)
	// Close releases connections. Sandboxes and jobs live on.
	Close() error
}

// Streams says where the output of a command goes while it runs. An error of a writer ends the command, and is the error
// of the call. The server ends a command whose output is not taken for 30 seconds.
type Streams struct {
	Stdout, Stderr io.Writer            // nil: discarded
	Started        func(sandbox string) // called with the id when the command has started; nil: not called
}

// Sandboxes are the caller's persistent sandboxes.
type Sandboxes interface {
	Create(context.Context, CreateRequest) (*Sandbox, error)
	// List returns a page of them, the newest first. All returns those of all pages: a sandbox that exists from the first
	// request to the last one is returned exactly once.
	List(context.Context, SandboxFilter) (*SandboxPage, error)
	All(context.Context, SandboxFilter) iter.Seq2[Sandbox, error]
	// Get describes a sandbox. One that has ended is not found.
	Get(ctx context.Context, sandbox string) (*Sandbox, error)
	// Remove removes a sandbox with its files, and ends its processes.
	Remove(ctx context.Context, sandbox string) error

	// Exec runs a command. It starts the processes of a stopped sandbox, and resumes those of a paused one.
	Exec(ctx context.Context, sandbox string, c Command) (*Result, error)
	ExecStream(ctx context.Context, sandbox string, c Command, to Streams) (*Result, error)
	// Terminal starts a command on a terminal, which the caller closes. The end of ctx closes it too.
	Terminal(ctx context.Context, sandbox string, o TerminalOptions) (Terminal, error)

	Start(ctx context.Context, sandbox string) (*Sandbox, error)
	// Stop ends the processes and keeps the files.
	Stop(ctx context.Context, sandbox string) (*Sandbox, error)
	// Pause stops the processes and keeps them in memory. Resume, or the next command, continues them.
	Pause(ctx context.Context, sandbox string) (*Sandbox, error)
	Resume(ctx context.Context, sandbox string) (*Sandbox, error)
	// Fork makes a sandbox with the files of another one or of a snapshot, and none of its processes. An empty name: a new
	// one.
	Fork(ctx context.Context, sandbox, name string) (*Sandbox, error)
	// Snapshot keeps the files as they are now. It is a sandbox in state "snapshot", for Fork.
	Snapshot(ctx context.Context, sandbox, name string) (*Sandbox, error)

	// SetLimits changes limits of a running sandbox, at most to the operator's. A zero leaves a limit as it is, and Disk
	// cannot change.
	SetLimits(ctx context.Context, sandbox string, l Limits) (*Sandbox, error)
	// Usage measures a sandbox: processor seconds, and bytes of memory. It is zero for one without processes.
	Usage(ctx context.Context, sandbox string) (*Usage, error)
	// Usages returns what running sandboxes used, as the server measured it in the last minutes: all samples of one sandbox, or
	// the newest of each if sandbox is empty.
	Usages(ctx context.Context, sandbox string) ([]SandboxUsage, error)
	// Receipt returns what the kernel enforces of a sandbox, also of one that has ended not long ago.
	Receipt(ctx context.Context, sandbox string) (*Receipt, error)
	// Processes lists the processes in a sandbox. A stopped one has none.
	Processes(ctx context.Context, sandbox string) ([]Process, error)
	// Changes lists the files that differ from the sandbox's image.
	Changes(ctx context.Context, sandbox string) (*Changes, error)

	// Ports lists the ports that the server's machine can reach. Publish adds one, on an address that the server chooses,
	// until Unpublish, or until the server ends.
	Ports(ctx context.Context, sandbox string) ([]Port, error)
	Publish(ctx context.Context, sandbox string, port uint16) (*Port, error)
	Unpublish(ctx context.Context, sandbox string, port uint16) error
}

// TerminalOptions describes a terminal. The zero value is a login shell in the usual directory, of 24 rows and 80
// columns.
type TerminalOptions struct {
	Command    string // text for /bin/sh -c; empty: a login shell
	Dir        string // empty: /workspace, or the image's
	Term       string // empty: xterm-256color
	Rows, Cols uint16
}

// Terminal is a command on a terminal. Read returns what the command writes, and io.EOF once it has ended. Write types.
// Close ends the command. One goroutine may read while others write.
type Terminal interface {
	io.ReadWriteCloser
	Resize(rows, cols uint16) error
	// Exit returns the exit code and the reason of the end, as in a [Result]. They are valid once Read has returned io.EOF;
	// before that, reason is empty.
	Exit() (code int, reason string)
}

// Files are the files of a sandbox. A relative path begins at /workspace. A missing file is ErrNotFound, and also
// fs.ErrNotExist.
type Files interface {
	// Read returns the content of a file of at most ReadMost bytes. A larger one is ErrTooLarge.
	Read(ctx context.Context, path string) ([]byte, error)
	// Write replaces a file, and makes missing directories.
	Write(ctx context.Context, path string, content []byte) (*File, error)
	// Download returns the content of a file of any size. The caller closes it. A file that could not be read to its end
	// ends with another error than io.EOF.
	Download(ctx context.Context, path string) (io.ReadCloser, error)
	// Upload is Write for content of any size. A failed upload leaves the file as it was.
	Upload(ctx context.Context, path string, content io.Reader) (*File, error)
	// Edit replaces a passage of a text file. old must occur once.
	Edit(ctx context.Context, path, old, new string) (*Edited, error)

	// List returns the entries of a directory, and of those below it down to a depth; 0: the entries alone.
	List(ctx context.Context, dir string, depth int) ([]File, error)
	Stat(ctx context.Context, path string) (*File, error)
	// Mkdir makes a directory with its parents.
	Mkdir(ctx context.Context, path string) (*File, error)
	Move(ctx context.Context, from, to string) (*File, error)
	Copy(ctx context.Context, from, to string) (*File, error)
	// Remove removes a file, or a directory with what is in it.
	Remove(ctx context.Context, path string) error

	Glob(context.Context, GlobRequest) (*Paths, error)
	Grep(context.Context, GrepRequest) (*Matches, error)
}

// ReadMost is the size of the largest file that [Files.Read] returns, in bytes.
const ReadMost = 64 << 20

// Jobs are the caller's commands in the background. Each has a sandbox of its own, and outlives its client.
type Jobs interface {
	Start(context.Context, JobRequest) (*Job, error)
	// List returns jobs and agents, the newest first.
	List(context.Context) ([]Job, error)
	// Get describes a job, with the end of its output.
	Get(ctx context.Context, id string) (*Job, error)
	// Wait waits for the end of a job or an agent. The end of ctx ends the waiting alone.
	Wait(ctx context.Context, id string) (*Job, error)
	// Cancel ends a job with its processes.
	Cancel(ctx context.Context, id string) (*Job, error)
	// Output returns what the job wrote to stdout or stderr, and writes until it ends. The caller closes it.
	Output(ctx context.Context, id, stream string) (io.ReadCloser, error)
}

// Agents are jobs that are coding agents. The methods of [Jobs] accept them too.
type Agents interface {
	Start(context.Context, AgentRequest) (*Job, error)
	// List returns agents with their cost, the newest first.
	List(context.Context) ([]Job, error)
	// Get describes an agent. Stdout is what it does, and at its end the answer.
	Get(ctx context.Context, id string) (*Job, error)
	// Trace returns what an agent did.
	Trace(ctx context.Context, id string) (*Trace, error)
}

// Outputs are the files that a command, a job or an agent left in /out. run is the field Run of its [Result] or [Job].
// Files of a persistent sandbox are read by [Files].
type Outputs interface {
	// List returns the files. It fails with ErrNotFound for a run that left none, and for one of another namespace.
	List(ctx context.Context, run string) ([]OutputFile, error)
	// Open returns the content of one of them, which a sandbox made. The caller closes it.
	Open(ctx context.Context, run, path string) (io.ReadCloser, error)
}

// Images are the images in the server's store, which all callers share.
type Images interface {
	List(context.Context) ([]Image, error)
	// Pull fetches an image. progress gets one line for each step; nil: it is not called.
	Pull(ctx context.Context, name string, progress func(line string)) (*Image, error)
	// Remove removes an image that no sandbox uses. It is the operator's.
	Remove(ctx context.Context, name string) error
}

// Egress is what sandboxes may reach, and the questions of those with [Network].Ask.
type Egress interface {
	Rules(ctx context.Context, sandbox string) (*Network, error)
	// SetRules replaces the rules. It fails for a sandbox that was made without a network.
	SetRules(ctx context.Context, sandbox string, n Network) (*Network, error)
	// Allow and Deny add rules, such as example.com or *.example.com:443.
	Allow(ctx context.Context, sandbox string, rules ...string) (*Network, error)
	Deny(ctx context.Context, sandbox string, rules ...string) (*Network, error)
	// Log yields the newest decisions about connections, and with follow also those that come, until ctx ends or the loop
	// is left. An error is the last thing that it yields.
	Log(ctx context.Context, sandbox string, follow bool) iter.Seq2[Decision, error]

	// Pending lists the connections that wait for an answer.
	Pending(context.Context) ([]Question, error)
	// Answer answers a question. The answer holds for the sandbox's later connections to that name. ErrNotFound: the
	// question waits no more.
	Answer(ctx context.Context, question string, allow bool) (*Answered, error)
	// Follow yields the questions that wait and those that come, and their answers, until ctx ends or the loop is left. An
	// error is the last thing that it yields.
	Follow(context.Context) iter.Seq2[Notice, error]
}

// Audit is the log of what happened. Each entry has the digest of the one before it.
type Audit interface {
	// List returns entries, the oldest first: the newest of those that f selects, or with f.After the first ones after it.
	// f.Last is their number, at most 1000; 0: 100. Callers of a namespace get its entries alone.
	List(ctx context.Context, f EventFilter) ([]AuditEntry, error)
	// Verify checks the chain, as the operator. mark is empty, or ID:SHA256 of an entry from an earlier report: then it must
	// still be there, which it is not in a log that was replaced as a whole.
	Verify(ctx context.Context, mark string) (*AuditReport, error)
}

// Host is the server's machine, if the operator turned host commands on. Otherwise, and for a Client of package inprocess,
// every method fails with ErrNotFound. The operator's policy lists what happens at once. The rest waits for a person:
// such an outcome has the state "pending", and Result returns what became of it.
type Host interface {
	Exec(context.Context, HostExec) (*HostOutcome, error)
	// Read, Write, List and Copy are about files. Copy copies one into a sandbox.
	Read(context.Context, HostFile) (*HostOutcome, error)
	Write(context.Context, HostFile) (*HostOutcome, error)
	List(context.Context, HostFile) (*HostOutcome, error)
	Copy(context.Context, HostFile) (*HostOutcome, error)
	// Access lists what needs no person. RequestAccess asks for more: all commands of a pattern, for a time.
	Access(context.Context) (*HostAccess, error)
	RequestAccess(context.Context, HostPattern) (*HostOutcome, error)
	// Result waits for the end of a request of this caller, at most 10 minutes.
	Result(ctx context.Context, id string, most time.Duration) (*HostOutcome, error)

	// Requests lists requests in a state; empty: in any. The operator sees those of all callers.
	Requests(ctx context.Context, state string) ([]HostRequest, error)
	// Approve and Refuse decide, as the operator. A program that approves without asking a person gives models the host.
	Approve(ctx context.Context, id string, a HostApproval) error
	Refuse(ctx context.Context, id string) error
}

// Notice is a question that was asked, or one that waits no more. One field is set.
type Notice struct {
	Question *Question
	Answered *Answered
}

// EventFilter selects events. The zero value selects those that happen from now on.
type EventFilter struct {
	Type      string
	Sandbox   string    // id
	Namespace string    // for the operator, who sees all
	After     uint64    // begin with the events after the one of that id; 0: with later ones
	Last      int       // begin with so many events of the past, at most 200; see [Audit] for its lists
	Since     time.Time // ignore earlier ones
}
