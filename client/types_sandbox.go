package client

import "time"

// ForkRequest asks for a sandbox with the files of another one or of a snapshot, and none of its processes.
type ForkRequest struct {
	Name string `json:"name,omitempty" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" doc:"Unique; empty: a new one"`
}

// Usage is what a sandbox uses now.
type Usage struct {
	CPU       float64 `json:"cpu_seconds" doc:"Since its processes started"`
	Memory    int64   `json:"memory_bytes"`
	Cache     int64   `json:"cache_bytes,omitempty" doc:"Part of memory"`
	Processes int     `json:"processes"`
}

// UsageSample is what a running sandbox used at a time.
type UsageSample struct {
	Time      time.Time `json:"time"`
	CPUs      float64   `json:"cpus" doc:"On average since the sample before"`
	Memory    int64     `json:"memory_bytes"`
	Processes int       `json:"processes"`
}

// SandboxUsage is what a sandbox used in the last minutes.
type SandboxUsage struct {
	Sandbox string        `json:"sandbox"`
	Samples []UsageSample `json:"samples" nullable:"false" doc:"The oldest first"`
}

// Process is a process in a sandbox. Its command line is untrusted.
type Process struct {
	PID     int     `json:"pid" doc:"The pid in the sandbox"`
	Parent  int     `json:"parent"`
	State   string  `json:"state" example:"S"`
	Command string  `json:"command"`
	Memory  int64   `json:"memory_bytes" doc:"Resident"`
	CPU     float64 `json:"cpu_seconds"`
}

// BrowseRequest has the arguments of a tool of a browser.
type BrowseRequest struct {
	Arguments map[string]any `json:"arguments,omitempty" doc:"Such as url"`
}

// BrowserResult is the answer of a tool of a browser. It comes from the sandbox and is untrusted.
type BrowserResult struct {
	Text     string    `json:"text"`
	Pictures []Picture `json:"pictures" nullable:"false"`
	Failed   bool      `json:"failed,omitempty" doc:"The tool reported an error"`
}

// Picture is a picture of a browser.
type Picture struct {
	MIME string `json:"mime_type"`
	Data []byte `json:"data"`
}

// Change is a file that differs from the start of its sandbox. The path is untrusted.
type Change struct {
	Path     string `json:"path"`
	Kind     string `json:"kind" enum:"A,M,D" doc:"Added, modified or deleted"`
	Executes string `json:"executes,omitempty" doc:"A program of the host would execute a file of this name"`
}

// Changes lists the files of a sandbox that differ from its image.
type Changes struct {
	Items []Change `json:"items" nullable:"false"`
	Cut   bool     `json:"truncated,omitempty"`
}

// Receipt says what a sandbox was asked to be, and what the kernel enforces of it.
type Receipt struct {
	Version     int            `json:"version"`
	Sandbox     string         `json:"sandbox"`
	Level       string         `json:"level" enum:"full,degraded,minimal"`
	Kernel      string         `json:"kernel"`
	Image       string         `json:"image"`
	ImageDigest string         `json:"image_digest,omitempty"`
	Layers      []Layer        `json:"layers" nullable:"true"`
	Limits      []LimitReceipt `json:"limits" nullable:"true"`
	Landlock    int            `json:"landlock_abi" doc:"0: no Landlock"`
	Seccomp     string         `json:"seccomp_sha256,omitempty" doc:"The sum of the loaded filter"`
	Network     string         `json:"network"`
}

// Layer is one mechanism that separates a sandbox from its host.
type Layer struct {
	Name   string `json:"name"`
	Status string `json:"status" enum:"held,degraded,missing,off"`
	Detail string `json:"detail,omitempty"`
	Why    string `json:"why,omitempty"`
	Fix    string `json:"fix,omitempty"`
}

// LimitReceipt is one limit and the mechanism that enforces it.
type LimitReceipt struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Mechanism string `json:"mechanism"`
	Status    string `json:"status" enum:"held,degraded,missing,off"`
	Why       string `json:"why,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// RuleRequest adds rules to a sandbox's rules.
type RuleRequest struct {
	Rules []string `json:"rules" minItems:"1" maxItems:"1000" example:"[\"example.com\"]"`
}

// Question is a connection that waits for an answer. The name comes from the sandbox.
type Question struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	Name    string    `json:"name"`
	Port    uint16    `json:"port"`
	Asked   time.Time `json:"asked"`
	Until   time.Time `json:"until" doc:"Denied then, until the sandbox asks again"`
}

// Answered says that a question waits no more.
type Answered struct {
	ID      string `json:"id"`
	Verdict string `json:"verdict" enum:"allowed,denied,unanswered"`
}

// Decision is a line of a sandbox's network log. Texts come from the sandbox.
type Decision struct {
	Time    time.Time `json:"time"`
	Via     string    `json:"via"`
	Host    string    `json:"host"`
	Port    uint16    `json:"port,omitempty"`
	Request string    `json:"request,omitempty"`
	Verdict string    `json:"verdict" enum:"allowed,denied,asked,changed"`
	Rule    string    `json:"rule,omitempty"`
	Group   string    `json:"group,omitempty" doc:"The destination is a sandbox of this group"`
	Reason  string    `json:"reason"`
	Error   string    `json:"error,omitempty"`
	In      int64     `json:"in" doc:"Bytes to the sandbox"`
	Out     int64     `json:"out" doc:"Bytes from the sandbox"`
	Times   int       `json:"times,omitempty" doc:"Decisions that the line stands for"`
}

// Image is an image in the store.
type Image struct {
	Names    []string  `json:"names" nullable:"false"`
	Digest   string    `json:"digest,omitempty"`
	Size     int64     `json:"size"`
	Platform string    `json:"platform,omitempty"`
	InUse    bool      `json:"in_use"`
	Created  time.Time `json:"created,omitzero"`
	Pulled   time.Time `json:"pulled,omitzero"`
	Used     time.Time `json:"used,omitzero"`
	Damage   string    `json:"damage,omitempty"`
}

// PullRequest asks for an image from its registry.
type PullRequest struct {
	Name string `json:"name" minLength:"1" maxLength:"512" example:"python:3.12"`
}

// BuildRequest asks for an image of a Containerfile. Its context is the body of the request, or a directory of the server's
// machine.
type BuildRequest struct {
	Tag     string   `query:"tag" required:"true" minLength:"1" maxLength:"512" example:"local/app" doc:"Name of the image"`
	File    string   `query:"file" maxLength:"4096" doc:"Path of the Containerfile in the context; empty: Containerfile or Dockerfile"`
	Target  string   `query:"target" maxLength:"256" doc:"The last stage to build; empty: the last of the file"`
	Args    []string `query:"arg,explode" maxItems:"1000" doc:"NAME=VALUE of an ARG, once for each"`
	Context string   `query:"context" maxLength:"4096" doc:"Directory of the server's machine, in place of a body"`
	NoCache bool     `query:"no_cache" doc:"Execute every step, even if an earlier build has its result"`
	Pull    bool     `query:"pull" doc:"Ask the registry for newer bases"`
}

// Built is an image that was built.
type Built struct {
	Tag    string `json:"tag"`
	Digest string `json:"digest"`
}

// Progress is a line about work that goes on.
type Progress struct {
	Message string `json:"message"`
}

// PortRequest asks to publish a port of a sandbox on the server's machine. The server chooses the address.
type PortRequest struct {
	To uint16 `json:"to" minimum:"1" doc:"Port on the sandbox's loopback"`
}

// TerminalRequest is a message of a terminal's client.
type TerminalRequest struct {
	Type string `json:"type" enum:"input,resize,ping"`
	Data string `json:"data,omitempty" doc:"Of an input; a binary message is an input too"`
	Rows uint16 `json:"rows,omitempty"`
	Cols uint16 `json:"cols,omitempty"`
}

// TerminalEvent is a message of a terminal's server.
type TerminalEvent struct {
	Type     string `json:"type" enum:"exit,pong,note,error"`
	ExitCode int    `json:"exit_code" doc:"The exit code, in an exit"`
	Reason   string `json:"reason,omitempty"`
	Spent
	Message string `json:"message,omitempty" doc:"The text of an error, or of a note that says what the operator's bounds reduce"`
}

// Server describes the server and the caller that asks.
type Server struct {
	Version   string   `json:"version"`
	Caller    string   `json:"caller"`
	Namespace string   `json:"namespace,omitempty" doc:"Empty: none"`
	Operator  bool     `json:"operator"`
	Host      bool     `json:"host" doc:"The operator turned on guarded commands of the host"`
	Models    []string `json:"models,omitempty" doc:"Models of agents, the default first"`
	// Stored has no entry for a caller without a namespace, who has no ceilings.
	Stored map[string]Stored `json:"stored,omitempty" doc:"What the caller's namespace stores over E2B's API, and its ceilings: bytes and files of volumes and uploads, volumes, snapshots, templates"`
}

// Stored is a number with its ceiling.
type Stored struct {
	Now int64 `json:"now"`
	Max int64 `json:"max" doc:"0: none"`
}
