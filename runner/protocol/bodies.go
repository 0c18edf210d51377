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

// Introduction is the body of a caller's first message. A caller without one is of the command line.
type Introduction struct {
	Door   runner.Door    `json:"door,omitempty"`
	Totals *runner.Limits `json:"totals,omitempty"` // of the limits of all sandboxes, for those it makes; zero: no bound
	Linger *time.Duration `json:"linger,omitempty"` // how long the runner stays after its last caller, if that is this one; nil: [runner.DefaultLinger]
	Retire bool           `json:"retire,omitempty"` // the runner is not to linger, whichever caller is its last
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
	Replaced bool `json:"replaced,omitempty"` // there was one of the key, and it was removed
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
	Lacks     []string     `json:"lacks,omitempty"` // secrets that it was restarted without, by name
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
	Granted string `json:"granted,omitempty"` // likewise

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

	Publish []runner.Port `json:"publish,omitempty"` // of a fork: those of the other sandbox are not inherited
	Door    runner.Door   `json:"-"`                 // the caller's, by the runner: a fork is of the door that forks
}
