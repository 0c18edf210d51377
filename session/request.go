package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
)

// ErrNoJob reports that no job has the given id.
var ErrNoJob = errors.New("job not found")

// Request is a checked request to make a sandbox, or to run a command in one. It is also the form in which a job is stored
// on disk. It does not identify its caller, and has no value of a credential.
type Request struct {
	Create  CreateOptions
	Run     RunOptions
	Secrets []string    `json:",omitempty"` // names of stored credentials that the sandbox gets
	Mounts  []HostMount `json:",omitempty"` // of a sandbox of the HTTP API
	jobs.Traits
}

// HostMount is a file or directory of this machine that a caller wants in a sandbox. Package operator decides about it.
type HostMount struct {
	Source, Target string // empty Target: as Source
	Mode           string // of HostModes; empty: the first
}

// HostModes are the modes of a HostMount: read-only, read-write, and with the changes kept apart (package cow).
var HostModes = []string{"ro", "rw", "cow"}

// Copied is the result of a copy, with the path of the copy.
type Copied struct {
	tarball.Report
	Path string
}

// LeftOut is a file that a copy left out.
type LeftOut = tarball.LeftOut

// Created is a persistent sandbox.
type Created struct {
	ID        string
	OutputDir string
	Receipt   *runner.Receipt
	Expires   time.Time
	Existing  bool   // it is the sandbox that had the key
	Replaced  bool   // a sandbox with the same key was removed first, with its files
	Told      func() // must be called once the client has the ID; else the sandbox is removed after this process dies
}

// Job is a background job: its record, and what a frontend shows of it. A queued job has the time of its request as start.
type Job struct {
	jobs.Job
	Command string     // or the prompt that it was started with; untrusted
	Agent   bool       // it has a prompt
	Outcome *RunResult // Stdout is set while it runs, Result once it has ended
	Cost    *Cost      // of an agent, so far; nil: not read, or the job is not an agent
}

// Listing lists one frontend's sandboxes and jobs.
type Listing struct {
	Sandboxes []Listed // persistent ones, the oldest first
	Jobs      []*Job   // the newest first
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

// Cost is what an agent used, in US dollars by the table of prices, and in tokens.
type Cost struct {
	Own, Total float64           // Total includes the children
	PerModel   map[string]Tokens // with the children
	Summary    string            // one line for a person; may be empty
}

// Tokens counts tokens. Input has none of those that were read from or written to a cache.
type Tokens struct {
	Input         int64 `json:"input"`
	Output        int64 `json:"output"`
	CacheCreation int64 `json:"cache_creation"`
	CacheRead     int64 `json:"cache_read"`
}

// Shell returns the command that executes shell text.
func Shell(text string) []string { return []string{"/bin/sh", "-c", text} }

// TextOf returns the command of a stored [Request], or the prompt of a stored agent. It returns nothing of another request.
func TextOf(stored json.RawMessage) (command string, agent bool) {
	var r struct {
		Request
		Prompt string
	}
	if json.Unmarshal(stored, &r) != nil {
		return "", false
	}
	return cmp.Or(r.Prompt, r.Text()), r.Prompt != ""
}

// Text returns the command of a request as a person reads it: the text of a shell, or its words.
func (r *Request) Text() string {
	argv := r.Run.Command.Argv
	if len(argv) == 3 && slices.Equal(argv[:2], Shell("")[:2]) {
		return argv[2]
	}
	return strings.Join(argv, " ")
}
