package runs

import (
	"encoding/json"
	"time"

	"demesne/runner"
)

// State is the state of a run.
type State string

// The possible states.
const (
	Queued    State = "queued"
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "failed"
	Canceled  State = "canceled"
)

// Over reports whether a run with this state has ended.
func (s State) Over() bool { return s == Completed || s == Failed || s == Canceled }

// Request is a checked request for a run, and the form in which it is stored.
type Request struct {
	Namespace  string          `json:",omitempty"` // of the caller
	Caller     string          `json:",omitempty"`
	Identifier string          // of the sandbox, in the namespace
	Commands   []Step          // at least one
	Root       bool            `json:",omitempty"` // the commands run as root of the sandbox
	Plain      bool            `json:",omitempty"` // the commands run as its uid 1000
	TTL        time.Duration   // of a new sandbox
	GoOn       bool            `json:",omitempty"` // the run does not end with the first failure
	Lock       bool            `json:",omitempty"` // wait for earlier runs with Lock in the same sandbox
	Await      time.Duration   `json:"-"`          // how long the caller waits for the end; 0: not at all
	Sandbox    json.RawMessage `json:",omitempty"` // describes a new sandbox; for the process that executes the run
}

// Step is a command as it was asked for. It has Shell or Argv.
type Step struct {
	Shell        string            `json:"shell,omitempty"`
	Argv         []string          `json:"argv,omitempty"`
	Cwd          string            `json:"cwd"`
	Env          map[string]string `json:"env,omitempty"`
	TimeoutMS    int64             `json:"timeout_ms"`
	AllowFailure bool              `json:"allow_failure,omitempty"`
}

// Run is the wire form of a run.
type Run struct {
	ID             string     `json:"run_id"`
	Identifier     string     `json:"identifier"`
	State          State      `json:"state"`
	Created        time.Time  `json:"created_at"`
	Started        time.Time  `json:"started_at,omitzero"`
	Ended          time.Time  `json:"ended_at,omitzero"`
	Sandbox        string     `json:"sandbox_container_id,omitempty"`
	SandboxName    string     `json:"sandbox_name,omitempty"`
	Commands       []Command  `json:"commands"`
	Artifacts      []Artifact `json:"artifacts"`
	ArtifactsError string     `json:"artifacts_error,omitempty"`
	Error          string     `json:"error,omitempty"`
}

// Command is a command with its result. The texts come from the sandbox: the first part of each stream. The status is
// queued until the command has ended.
type Command struct {
	Index int `json:"index"`
	Step
	Result
	Started time.Time `json:"started_at,omitzero"`
	Ended   time.Time `json:"ended_at,omitzero"`
	Stdout  string    `json:"stdout,omitempty"`
	Stderr  string    `json:"stderr,omitempty"`

	out, errs []byte // the texts so far
}

// Statuses of a command.
const (
	waiting   = "queued"
	succeeded = "completed"
	failed    = "failed"
	timedOut  = "timed_out"
)

// Artifact is a file that was in /artifacts after a run.
type Artifact struct {
	Path   string `json:"path"` // relative
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"`
}

// Kind is the type of an event.
type Kind string

// Types of events.
const (
	runStarted         Kind = "run_started"
	commandStarted     Kind = "command_started"
	commandStdout      Kind = "command_stdout"
	commandStderr      Kind = "command_stderr"
	commandFinished    Kind = "command_finished"
	artifactsExtracted Kind = "artifacts_extracted"
	runFinished        Kind = "run_finished"
	runFailed          Kind = "run_failed"
)

// over reports whether an event of this type is the last one.
func (k Kind) over() bool { return k == runFinished || k == runFailed }

// Event is one event of a run, and a line of its log.
type Event struct {
	Kind Kind `json:"event"`
	Data Data `json:"data"`
}

// Data is the payload of an event. Each type has its own fields, and leaves the others out.
type Data struct {
	Run        string    `json:"run_id"`
	Identifier string    `json:"identifier,omitempty"`
	Sandbox    string    `json:"sandbox_container_id,omitempty"`
	Name       string    `json:"sandbox_name,omitempty"`
	Index      *int      `json:"index,omitempty"` // of the command
	Shell      string    `json:"shell,omitempty"`
	Argv       []string  `json:"argv,omitempty"`
	Cwd        string    `json:"cwd,omitempty"`
	Chunk      string    `json:"chunk,omitempty"` // of output
	Truncated  *bool     `json:"truncated,omitempty"`
	Started    time.Time `json:"started_at,omitzero"`
	Ended      time.Time `json:"ended_at,omitzero"`
	Count      *int      `json:"count,omitempty"` // of artifacts
	Error      string    `json:"error,omitempty"`
	Canceled   bool      `json:"canceled,omitempty"`
	*Result
}

// Result is how a command ended.
type Result struct {
	ExitCode int     `json:"exit_code"`
	Status   string  `json:"status"`
	Reason   string  `json:"reason,omitempty"` // why it did not exit by itself
	Seconds  float64 `json:"seconds"`
	runner.Spent
	StdoutBytes     int64 `json:"stdout_bytes"`
	StderrBytes     int64 `json:"stderr_bytes"`
	StdoutTruncated bool  `json:"stdout_truncated"`
	StderrTruncated bool  `json:"stderr_truncated"`
}

// apply changes r by an event of its log. Output is added as it comes, because it was bounded when it was written.
func (r *Run) apply(e Event) {
	d := &e.Data
	switch e.Kind {
	case runStarted:
		r.State, r.Started, r.Sandbox, r.SandboxName = Running, d.Started, d.Sandbox, d.Name
	case runFinished:
		r.State, r.Ended = Completed, d.Ended
	case runFailed:
		r.State, r.Ended, r.Error = Failed, d.Ended, d.Error
		if d.Canceled {
			r.State = Canceled
		}
	case artifactsExtracted:
		r.ArtifactsError = d.Error
	}
	if d.Index == nil || *d.Index < 0 || *d.Index >= len(r.Commands) {
		return
	}
	c := &r.Commands[*d.Index]
	switch e.Kind {
	case commandStarted:
		c.Started = d.Started
	case commandStdout:
		c.out = append(c.out, d.Chunk...)
	case commandStderr:
		c.errs = append(c.errs, d.Chunk...)
	case commandFinished:
		c.Ended = d.Ended
		if d.Result != nil {
			c.Result = *d.Result
		}
	}
}

// finish completes r after the last event.
func (r *Run) finish() {
	for i := range r.Commands {
		c := &r.Commands[i]
		c.Stdout, c.Stderr = string(c.out), string(c.errs)
	}
}
