package api

import (
	"encoding/json"

	"demesne/runner"
	"demesne/runner/ipc"
)

// ExecRequest is the body of an exec call; its descriptors are stdin, stdout and
// stderr.
type ExecRequest struct {
	Sandbox string          `json:"sandbox"`
	Argv    []ipc.Bytes     `json:"argv"`
	Env     []ipc.Bytes     `json:"env,omitempty"`
	Dir     ipc.Bytes       `json:"dir,omitempty"`
	User    *runner.User    `json:"user,omitempty"`
	Timeout runner.Duration `json:"timeout,omitempty"`
	TTY     *runner.Winsize `json:"tty,omitempty"`

	// Secrets must be among those that the sandbox was started with.
	Secrets []runner.Secret `json:"secrets,omitempty"`

	// Silent is of a command of demesne's own, whose result is not shown: Restarted is left for the next command.
	Silent bool `json:"silent,omitempty"`
	// Open asks for what an open call tells, too.
	Open bool `json:"open,omitempty"`
	// Tag is the caller's own number of the command: OpEnded comes with it. 0: it does not come.
	Tag uint64 `json:"tag,omitempty"`
	// Receipt asks for the sandbox's receipt, unless it is still the one of this digest. nil: it does not.
	Receipt *string `json:"receipt,omitempty"`
}

// ExecReply answers it, with the terminal as descriptor if one was asked for.
type ExecReply struct {
	Exec  uint64         `json:"exec"`
	PID   int            `json:"pid"` // inside the sandbox
	Trace []runner.Stage `json:"trace"`

	Restarted bool     `json:"restarted,omitempty"` // see Result
	Lacks     []string `json:"lacks,omitempty"`     // Result.MissingSecrets
	Opened    *Opened  `json:"opened,omitempty"`    // if it was asked for

	Digest  string          `json:"digest,omitempty"`  // of the receipt, if it was asked for
	Receipt json.RawMessage `json:"receipt,omitempty"` // if it has another digest than the caller's
}

// ExecEnded is the event that tells how a command with a tag ended.
type ExecEnded struct {
	Tag    uint64         `json:"tag"`
	Result *runner.Result `json:"result"`
}

// ExecTarget names a running command.
type ExecTarget struct {
	Sandbox string          `json:"sandbox"`
	Exec    uint64          `json:"exec"`
	Signal  int             `json:"signal,omitempty"`
	TTY     *runner.Winsize `json:"tty,omitempty"`
}

// RunRequest is the body of a run call. Its descriptors are those of both its halves.
type RunRequest struct {
	Spec runner.Spec `json:"spec"`
	Exec ExecRequest `json:"exec"` // with no Sandbox
}

// RunReply answers it.
type RunReply struct {
	Created Created   `json:"created"`
	Exec    ExecReply `json:"exec"`
}
