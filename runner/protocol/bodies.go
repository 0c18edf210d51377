package protocol

import (
	"time"

	"demesne/runner"
	"demesne/runner/wire"
)

// Attached is the reply to an attach call, with the terminal as descriptor.
type Attached struct {
	Exec   uint64     `json:"exec"`
	Recent wire.Bytes `json:"recent,omitempty"` // what was written while nobody had the terminal: the end of it
}

// Introduction is a caller's first message, with its user namespace as descriptor.
type Introduction struct {
	Linger time.Duration `json:"linger,omitempty"` // how long the runner stays after its last caller, if that is this one
}

// Hello is the runner's first message on a new connection. It needs no version: a caller finds none but runners
// of its own programs.
type Hello struct {
	PID  int    `json:"pid"`
	Mode string `json:"mode"`
}

// Created is the reply to a create call.
type Created struct {
	ID    string         `json:"id"`
	Level runner.Level   `json:"level"`
	Trace []runner.Stage `json:"trace"`

	Existing bool `json:"existing,omitempty"` // there is one of the key: open it
}

// Target names a sandbox by id or name.
type Target struct {
	Sandbox string `json:"sandbox"`
	Keep    bool   `json:"keep,omitempty"` // of a stop call: the files stay
}

// Opened is the reply to an open or restart call.
type Opened struct {
	ID        string       `json:"id"`
	Level     runner.Level `json:"level"`
	Out       string       `json:"output_dir"`
	Restarted bool         `json:"restarted,omitempty"`
}

// LayerRequest is the body of a layer call; its descriptor is where the layer goes.
type LayerRequest struct {
	Sandbox string `json:"sandbox"`
	Layer   int    `json:"layer"`
}

// Answer is the body of an answer call.
type Answer struct {
	Sandbox string `json:"sandbox"`
	ID      uint64 `json:"id"`
	Allow   bool   `json:"allow"`
	Silent  bool   `json:"silent,omitempty"` // nobody has answered, and nobody will
}

// Restart is the body of a restart call; its descriptors are those of a create call.
type Restart struct {
	Sandbox string `json:"sandbox"`
	Exposed bool   `json:"exposed,omitempty"` // as in Spec, found out anew

	// As in Egress: no file has them.
	Upstream map[string]string `json:"upstream,omitempty"`
	Secrets  []runner.Secret   `json:"secrets,omitempty"`
}

// ForkRequest is the body of a fork call.
type ForkRequest struct {
	Sandbox  string `json:"sandbox"`
	Name     string `json:"name,omitempty"`
	Out      string `json:"out,omitempty"`
	Snapshot bool   `json:"snapshot,omitempty"`
	Passing  bool   `json:"passing,omitempty"` // of a snapshot: it goes with the connection
}
