package api

import (
	"encoding/json"

	"demesne/runner"
	"demesne/runner/ipc"
)

// ExecRequest is the body of an exec call. Its descriptors are stdin, stdout and stderr.
type ExecRequest struct {
	Sandbox string          `json:"sandbox"`
	Argv    []ipc.Bytes     `json:"argv"`
	Else    [][]ipc.Bytes   `json:"else,omitempty"` // see Command.Else
	Env     []ipc.Bytes     `json:"env,omitempty"`
	Path    []ipc.Bytes     `json:"path,omitempty"` // see Command.Path
	Dir     ipc.Bytes       `json:"dir,omitempty"`
	User    *runner.User    `json:"user,omitempty"`
	Timeout runner.Duration `json:"timeout,omitempty"`
	TTY     *runner.Winsize `json:"tty,omitempty"`

	// Secrets must be a subset of the secrets with which the sandbox was started.
	Secrets []runner.Secret `json:"secrets,omitempty"`

	// Silent marks one of demesne's own commands, whose result is not shown. It leaves Restarted to be reported by
	// the next command.
	Silent bool `json:"silent,omitempty"`
	// Open asks for the reply of an open call as well.
	Open bool `json:"open,omitempty"`
	// Tag is the caller's own number for the command. The OpEnded event carries it; 0 requests no event.
	Tag uint64 `json:"tag,omitempty"`
	// Alone is Command.Alone.
	Alone bool `json:"alone,omitempty"`
	// Receipt asks for the sandbox's receipt unless its digest still equals this one. nil requests no receipt.
	Receipt *string `json:"receipt,omitempty"`
}

// ExecReply is the reply to an exec call. It carries the terminal as a descriptor if the call asked for one.
type ExecReply struct {
	Exec  uint64         `json:"exec"`
	PID   int            `json:"pid"` // inside the sandbox
	Trace []runner.Stage `json:"trace"`

	Restarted      bool     `json:"restarted,omitempty"`       // see Result
	MissingSecrets []string `json:"missing_secrets,omitempty"` // Result.MissingSecrets
	Opened         *Opened  `json:"opened,omitempty"`          // set if the call asked for it

	Digest  string          `json:"digest,omitempty"`  // digest of the receipt, if the call asked for it
	Receipt json.RawMessage `json:"receipt,omitempty"` // set if its digest differs from the caller's
}

// ExecEnded is the event that reports the result of a command with a tag.
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

// RunRequest is the body of a run call. It carries the descriptors of a create call and of an exec call.
type RunRequest struct {
	Spec runner.Spec `json:"spec"`
	Exec ExecRequest `json:"exec"` // without Sandbox
}

// RunReply is the reply to a run call.
type RunReply struct {
	Created Created   `json:"created"`
	Exec    ExecReply `json:"exec"`
}
