// Package work is what may be asked of demesne by those who run commands in sandboxes and
// need more than one call for it, and what they are answered: the MCP tools, and those of
// the command line that start jobs.
//
// It is words only. What they mean is behind [Engine]; who asks is not in them, for whoever
// asks has checked by then what it may ask for. The package is light: it does not link the
// MCP SDK.
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

// ErrNoJob says that an id is no job's.
var ErrNoJob = errors.New("job not found")

// Engine does what is asked. Its methods may be called at once from many goroutines, and
// return when ctx ends: what was started for the call is ended by then.
type Engine interface {
	// Script makes a sandbox, runs one command in it and removes it. With a key in its Spec the
	// sandbox is that of the key, and stays.
	Script(ctx context.Context, r Request, w Watch) (*Outcome, error)
	// Start is Script as a job: it returns as soon as the job is on disk.
	Start(ctx context.Context, r Request) (*Job, error)
	// Create makes a sandbox that stays until it is destroyed or its time is over.
	Create(ctx context.Context, r Request, w Watch) (*Created, error)
	// Exec runs a command in a sandbox that was created, and renews its time.
	Exec(ctx context.Context, id string, r Request, w Watch) (*Outcome, error)
	// Upload copies src, a file or directory of the host, to dst in the sandbox.
	Upload(ctx context.Context, id, src, dst string) (Copied, error)
	// Download copies src out of the sandbox.
	Download(ctx context.Context, id, src string) (Copied, error)
	// Files does one thing with the files of a sandbox, inside it. The answer is the
	// sandbox's word: text, and no path of the host's.
	Files(ctx context.Context, id string, r files.Request) (*files.Answer, error)
	Destroy(ctx context.Context, id string) error
	// Status, Wait and Cancel return ErrNoJob for an id that nobody knows. Wait returns
	// the job as it is when it has ended or the time is over. Cancel may be repeated.
	Status(ctx context.Context, id string) (*Job, error)
	Wait(ctx context.Context, id string, most time.Duration) (*Job, error)
	Cancel(ctx context.Context, id string) (*Job, error)
}

// Request is what is to be run and where, checked. It is also what a job has on disk.
type Request struct {
	// Spec says what the sandbox is to be, but for what the engine knows better: the image,
	// /out, the network, how long it lives.
	Spec    runner.Spec
	Image   string   // as imageref.Parse reads it, wherever it is read
	User    string   `json:",omitempty"` // in words of the image
	Egress  string   `json:",omitempty"` // a mode's name; empty: none
	Domains []string `json:",omitempty"` // rules besides

	// OwnImage and OwnEgress say that the caller named an image or a mode: with a key, another one than the sandbox's is an
	// error then.
	OwnImage, OwnEgress bool `json:",omitempty"`

	Command string        `json:",omitempty"` // for /bin/sh -c; empty for Create
	Env     []string      `json:",omitempty"`
	Dir     string        `json:",omitempty"` // empty: /out
	Stdin   string        `json:",omitempty"`
	Timeout time.Duration `json:",omitempty"` // 0: none but the engine's own
	Ask     bool          `json:",omitempty"` // Watch.Ask decides about names that no rule speaks of
	Queue  bool          `json:",omitempty"` // after all that came earlier for the same sandbox and said so too
}

// Watch is told how a call goes on; nil members are not called.
type Watch struct {
	// Progress takes one line about what is being done, at any time and from any goroutine.
	Progress func(message string)
	// Output takes, when the command starts, a function that tells what it has written to
	// stdout: the last lines, and the bytes until now. That may be called for ever after.
	Output func(last func() (tail string, n int64))
	// Ask puts a name that the sandbox wants to reach to a person, who may take [AskTime]. It is
	// called for several at once; nil: the answer is no.
	Ask func(Question) (allow bool)
}

// Question is about a name that a sandbox wants to reach.
type Question struct {
	Name   string
	Port   uint16   // 0: of no port
	Inputs []string // paths of the host that the sandbox can read, and so send there
}

// Outcome is how a command ended and what it wrote.
type Outcome struct {
	Job       string // names OutputDir
	OutputDir string
	Manifest  string // file with the SHA-256 of each file in OutputDir; empty: there is none
	Result    *runner.Result
	Stdout    Tail
	Stderr    Tail
}

// Tail is the end of a stream.
type Tail struct {
	Text  string // valid UTF-8
	Bytes int64  // of the whole stream
	Cut   bool   // Text is not all of it
}

// What an [Outcome] carries of a stream, in bytes. All of it is in OutputDir, for a script.
const (
	StdoutMax = 1 << 20
	StderrMax = 16 << 10
)

// AskTime is how long a connection waits for somebody's answer.
const AskTime = 2 * time.Minute

// Copied is what a copy did, and where the copy is.
type Copied struct {
	tarball.Report
	Path string
}

// Created is a sandbox that stays.
type Created struct {
	ID        string
	OutputDir string
	Receipt   *runner.Receipt
	Expires   time.Time
	Replaced  bool   // another one of its key was removed for it, with its files
	Told      func() // to be called once whoever asked knows of it: else it goes after our death
}

// Job is a background job as it is on disk.
type Job struct {
	ID      string
	Status  jobs.Status
	Started time.Time
	Ended   time.Time // zero while it runs
	Message string    // why it failed, was cancelled, or ended as it did
	Outcome *Outcome  // Stdout is filled while it runs, Result once it has ended
}
