package mcp

import (
	"context"
	"time"

	"demesne/runner"
)

// Engine is what the tools do. Its methods may be called at once from many goroutines,
// and return when ctx ends: what was started for the call is ended by then.
type Engine interface {
	// Script makes a sandbox, runs one command in it and removes it.
	Script(ctx context.Context, r Request, w Watch) (*Outcome, error)
	// Start is Script as a job: it returns as soon as the job is on disk.
	Start(ctx context.Context, r Request) (*Job, error)
	// Create makes a sandbox that stays until it is destroyed or its time is over.
	Create(ctx context.Context, r Request) (*Created, error)
	// Exec runs a command in a sandbox that was created, and renews its time.
	Exec(ctx context.Context, id string, r Request, w Watch) (*Outcome, error)
	// Upload copies src, a file or directory of the host, to dst in the sandbox.
	Upload(ctx context.Context, id, src, dst string) error
	// Download copies src out of the sandbox and returns where it is.
	Download(ctx context.Context, id, src string) (string, error)
	Destroy(ctx context.Context, id string) error

	// Status, Wait and Cancel return ErrNoJob for an id that nobody knows. Wait returns
	// the job as it is when it has ended or the time is over. Cancel may be repeated.
	Status(ctx context.Context, id string) (*Job, error)
	Wait(ctx context.Context, id string, most time.Duration) (*Job, error)
	Cancel(ctx context.Context, id string) (*Job, error)
}

// Request is what a model asked to run, checked.
type Request struct {
	Command string // for /bin/sh -c; empty for Create
	Image   string // a catalogue name, or one the operator allows
	Egress  string // a mode's name
	Domains []string
	Inputs  []runner.Input
	Env     []string
	Dir     string // empty: /out, as ever
	Stdin   string
	Timeout time.Duration // 0: none but the engine's own
	Limits  runner.Limits
	Name    string
	Key     string
}

// Watch is told how a call goes on, at any time and from any goroutine; nil members are
// not called.
type Watch struct {
	Progress func(message string)     // one line: what is being done
	Output   func(tail string, n int) // the last lines of stdout, and its bytes so far
}

// Outcome is how a command ended and what it wrote.
type Outcome struct {
	Job       string // names OutputDir
	OutputDir string
	Result    *runner.Result
	Stdout    Tail
	Stderr    Tail
	Denied    []string // connections, one line each
}

// Tail is the end of a stream.
type Tail struct {
	Text  string // valid UTF-8
	Bytes int64  // of the whole stream
	Cut   bool   // Text is not all of it
}

// Created is a sandbox that stays.
type Created struct {
	ID        string
	OutputDir string
	Receipt   *runner.Receipt
	Expires   time.Time
}

// Job is a background job as it is on disk.
type Job struct {
	ID      string
	Status  Status
	Started time.Time
	Ended   time.Time // zero while it runs
	Message string    // why it failed, was cancelled, or ended as it did
	Outcome *Outcome  // nil until it has ended; Stdout is filled while it runs
}

// Status is a job's.
type Status string

// The statuses there are. A command that ends with another code than 0 succeeded in
// running.
const (
	Running   Status = "running"
	Queued    Status = "queued"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Over says whether a job with this status has ended.
func (s Status) Over() bool { return s == Succeeded || s == Failed || s == Cancelled }
