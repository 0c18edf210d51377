// Package backend defines the requests and results of operations that run commands in sandboxes and take several
// calls of the runner's client. Its callers are the MCP tools and the commands of the command line that start jobs.
//
// It contains types only. [Backend] is implemented elsewhere. A request does not identify its caller: the caller must
// already have checked what it may ask for. The package does not link the MCP SDK.
package backend

import (
	"context"
	"errors"
	"time"

	"demesne/runner"
	"demesne/runner/files"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
)

// ErrNoJob reports that no job has the given id.
var ErrNoJob = errors.New("job not found")

// Backend runs the operations. Its methods are safe for concurrent use and return when ctx ends. By then everything
// that was started for the call has ended.
type Backend interface {
	// Script makes a sandbox, runs one command in it and removes it. If r.Spec has a key, Script uses the persistent
	// sandbox of that key and keeps it.
	Script(ctx context.Context, r Request, w Callbacks) (*RunResult, error)
	// Start runs Script as a job. It returns as soon as the job is stored on disk.
	Start(ctx context.Context, r Request) (*Job, error)
	// Create makes a persistent sandbox. It exists until it is destroyed or expires.
	Create(ctx context.Context, r Request, w Callbacks) (*Created, error)
	// Exec runs a command in a persistent sandbox and renews its expiry.
	Exec(ctx context.Context, id string, r Request, w Callbacks) (*RunResult, error)
	// Upload copies src, a file or directory of the host, to dst in the sandbox.
	Upload(ctx context.Context, id, src, dst string, w Callbacks) (Copied, error)
	// Download copies src out of the sandbox.
	Download(ctx context.Context, id, src string, w Callbacks) (Copied, error)
	// Files performs one file operation inside a sandbox. The answer comes from the sandbox and is untrusted. It
	// contains text, and no path of the host.
	Files(ctx context.Context, id string, r files.Request) (*files.Answer, error)
	Destroy(ctx context.Context, id string) error
	// List returns the sandboxes and jobs of the caller's frontend.
	List(ctx context.Context) (*Listing, error)
	// Fork copies a persistent sandbox. An empty name means none.
	Fork(ctx context.Context, id, name string) (*Created, error)
	// CopyBetween copies src in one sandbox to dst in another.
	CopyBetween(ctx context.Context, id, src, toID, dst string, w Callbacks) (Copied, error)
	// Status, Wait and Cancel return ErrNoJob for an unknown id. Wait returns the job when it has ended or after
	// most, whichever is first. Cancel may be repeated.
	Status(ctx context.Context, id string) (*Job, error)
	Wait(ctx context.Context, id string, most time.Duration) (*Job, error)
	Cancel(ctx context.Context, id string) (*Job, error)
	// Agent runs a coding agent in a sandbox of its own until it ends. StartAgent does so as a job.
	Agent(ctx context.Context, r AgentRequest, w Callbacks) (*AgentResult, error)
	StartAgent(ctx context.Context, r AgentRequest) (*Job, error)
	// Usage reports what an agent run and its children used. Either argument may be empty; outputDir takes precedence.
	Usage(ctx context.Context, jobID, outputDir string) (*UsageReport, error)
}

// Request is a checked request to run a command. It is also the form in which a job is stored on disk. On the nested
// server, Spec.Name is the name of a child: see [AgentRequest].
type Request struct {
	// Spec describes the sandbox. The engine sets the image, /out, the network and the lifetime itself.
	Spec    runner.Spec
	Image   string   // parsed by imageref.Parse
	Stored  bool     `json:",omitempty"` // the image must be in the store: no registry is asked
	User    string   `json:",omitempty"` // a user or group of the image, by name or id
	Egress  string   `json:",omitempty"` // name of an egress mode; empty: no network
	Domains []string `json:",omitempty"` // egress rules in addition to the mode
	Secrets []string `json:",omitempty"` // names of credentials that the operator offers

	// OwnImage and OwnEgress are set if the caller specified an image or a mode. With a key, it is an error if they
	// differ from the sandbox's.
	OwnImage, OwnEgress bool `json:",omitempty"`
	// UnaskedLimits names the limits in Spec that the caller did not specify. With a key, they may differ from the
	// sandbox's.
	UnaskedLimits []string `json:",omitempty"`

	Command string        `json:",omitempty"` // for /bin/sh -c; empty for Create
	Env     []string      `json:",omitempty"`
	Dir     string        `json:",omitempty"` // empty: /out
	Stdin   string        `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"` // 0: only the engine's own limit
	// MaxOutput is the length of stdout, in bytes, from which on [Tail].Head and File are set. 0: they are not needed.
	MaxOutput int `json:",omitempty"`
	// Steps is a list of commands in place of Command. With GoOn it does not end with the first failure.
	Steps []runner.Step `json:",omitempty"`
	GoOn  bool          `json:",omitempty"`

	Ask   bool `json:",omitempty"` // let Callbacks.Ask decide about names that no rule covers
	Queue bool `json:",omitempty"` // wait for earlier requests with Queue for the same sandbox
}

// Callbacks holds the callbacks of a call. Each may be nil.
type Callbacks struct {
	// Progress receives a one-line status message. It may be called at any time and from any goroutine.
	Progress func(message string)
	// Output takes, when the command starts, a function that tells what it has written to
	// stdout: the last lines and the number of bytes so far. That function may be called at any later time.
	Output func(last func() (tail string, n int64))
	// Stream takes the output of code as it appears. It may be called from any goroutine.
	Stream func(output string)
	// Moves takes, when a copy starts, a function that returns how many files are complete and how many bytes were
	// copied so far. That function may be called at any later time.
	Moves func(moved func() (files, bytes int64))
	// Ask asks a person whether the sandbox may reach a name, and may take [runner.AskTime]. It is called concurrently. If
	// it is nil, the answer is no.
	Ask func(Question) (allow bool)
}

// Question asks whether a sandbox may reach a name.
type Question struct {
	Name   string
	Port   uint16   // 0: no specific port
	Inputs []string // paths of the host that the sandbox can read and so could send
}

// RunResult is the result of a command, with its output: the last [runner.OutputKept] bytes of stdout and
// [runner.StderrKept] of stderr. For Script, OutputDir has the whole streams.
type RunResult struct {
	Job       string // name of OutputDir
	OutputDir string
	Manifest  string // file with the SHA-256 of each file in OutputDir; empty: no manifest
	Result    *runner.Result
	Stdout    Tail
	Stderr    Tail

	Steps  []*RunResult // of a list of commands, those that ran; the other fields are the first failure's, or the last one's
	Step   int          // place in a list
	Failed bool         // of a command of a list: its failure is one that the list does not allow
}

// Tail is the last part of a stream.
type Tail struct {
	Text  string // valid UTF-8
	Bytes int64  // of the whole stream
	Cut   bool   // Text is not the whole stream
	Head  string // the first part of a stream that is longer than asked for; may be empty
	File  string // file of the host with the whole of it; empty: none
}

// Copied is the result of a copy, with the path of the copy.
type Copied struct {
	tarball.Report
	Path string
}

// Created is a persistent sandbox.
type Created struct {
	ID        string
	OutputDir string
	Receipt   *runner.Receipt
	Expires   time.Time
	Replaced  bool   // a sandbox with the same key was removed first, with its files
	Told      func() // must be called once the client has the ID; else the sandbox is removed after this process dies
}

// Job is a background job, as stored on disk.
type Job struct {
	ID      string
	Name    string // of a child; see [AgentRequest]
	Status  jobs.Status
	Started time.Time
	Ended   time.Time  // zero while it runs
	Message string     // the reason if it failed, was cancelled or ended abnormally
	Outcome *RunResult // Stdout is set while it runs, Result once it has ended
	Cost    *Cost      // of an agent, so far; nil: the job is no agent
}

// Listing is what one frontend has.
type Listing struct {
	Sandboxes []Listed    // persistent ones, the oldest first
	Jobs      []ListedJob // the newest first
}

// Listed describes one sandbox. Commands come from the sandbox and are untrusted.
type Listed struct {
	ID, Name, Key string
	State         runner.State
	Image, Egress string
	OutputDir     string
	Created       time.Time
	Expires       time.Time
	Commands      []string // command lines of processes that run in it, without their children
}

// ListedJob is a job with the command or prompt that it was started with.
type ListedJob struct {
	Job
	Command string
	Agent   bool
}
