package client

import (
	"fmt"
	"time"
)

// Error is the answer of a request that failed, and the error of a method. It has the shape of an [Envelope].
type Error struct {
	Code    int      `json:"code" doc:"The HTTP status"`
	Message string   `json:"message"`
	Data    []Detail `json:"data" required:"false" nullable:"false" doc:"The parts of the request that are wrong. Absent if the server refused the request before its route"`

	RetryAfter time.Duration `json:"-"` // when the server may have room again; 0: it did not say
}

// Detail names one part of a request that is wrong.
type Detail struct {
	Location string `json:"location" doc:"Such as body.limits.memory"`
	Message  string `json:"message"`
}

// Error returns the message with the first detail.
func (e *Error) Error() string {
	if len(e.Data) > 0 {
		return fmt.Sprintf("%s: %s: %s", e.Message, e.Data[0].Location, e.Data[0].Message)
	}
	return e.Message
}

// GetStatus returns the HTTP status.
func (e *Error) GetStatus() int { return e.Code }

// Settings describes a sandbox. The zero value has the server's image, its usual limits and no network.
type Settings struct {
	Image   string            `json:"image,omitempty" maxLength:"512" example:"python:3.12" doc:"Empty: the server's own"`
	Limits  *Limits           `json:"limits,omitempty" doc:"At most the operator's"`
	Network *Network          `json:"network,omitempty" doc:"Without it the sandbox reaches nothing, and that cannot be changed later"`
	Group   string            `json:"group,omitempty" maxLength:"63" pattern:"^[a-z0-9_][a-z0-9_-]*$" example:"shop" doc:"Sandboxes of one group and namespace reach each other by name, on all TCP ports that they listen on. The sandbox is then called NAME.GROUP"`
	Env     map[string]string `json:"env,omitempty" maxProperties:"1000" doc:"Variables of every command"`
	Secrets []string          `json:"secrets,omitempty" maxItems:"100" doc:"Names of stored secrets (demesne secret add). Commands find placeholders in the variables of these names; the network must allow the host of each"`
}

// Limits bounds a sandbox. In a request zero means the server's usual limit, in an answer none.
type Limits struct {
	Memory int64   `json:"memory,omitempty" minimum:"0" doc:"Bytes"`
	CPUs   float64 `json:"cpus,omitempty" minimum:"0" doc:"Processors"`
	PIDs   int64   `json:"pids,omitempty" minimum:"0" doc:"Processes and threads"`
	Disk   int64   `json:"disk,omitempty" minimum:"0" doc:"Bytes that the sandbox writes"`
}

// Network says what a sandbox may reach. Rules are written as in demesne's policies: example.com or *.example.com:443.
type Network struct {
	Mode  string   `json:"mode,omitempty" maxLength:"64" example:"package-managers" doc:"A mode of the network, such as none or open; empty: none. At most the operator's"`
	Allow []string `json:"allow,omitempty" maxItems:"1000"`
	Deny  []string `json:"deny,omitempty" maxItems:"1000" doc:"Takes precedence over mode and allow"`
	Ask   bool     `json:"ask,omitempty" doc:"A connection to a name without a rule waits for an answer: see /v1/egress/questions"`
}

// Command describes a command. Either Command or Argv is set.
type Command struct {
	Command   string            `json:"command,omitempty" maxLength:"131072" example:"python3 -c 'print(6*7)'" doc:"Text for /bin/sh -c"`
	Argv      []string          `json:"argv,omitempty" maxItems:"10000" doc:"A program with its arguments, in place of command"`
	Env       map[string]string `json:"env,omitempty" maxProperties:"1000"`
	Dir       string            `json:"cwd,omitempty" maxLength:"4096" example:"/workspace" doc:"Empty: /workspace, or the image's"`
	User      string            `json:"user,omitempty" maxLength:"64" example:"1000:1000" doc:"UID, UID:GID or the name of an account of the sandbox. Empty: the sandbox's own"`
	Stdin     string            `json:"stdin,omitempty" maxLength:"4194304"`
	TimeoutMS int64             `json:"timeout_ms,omitempty" minimum:"0" maximum:"172800000" doc:"0: 48 hours"`
}

// RunRequest asks for a command in a new sandbox, which is removed afterwards. Env is the environment of the command.
type RunRequest struct {
	Command
	Image   string   `json:"image,omitempty" maxLength:"512" example:"python:3.12" doc:"Empty: the server's own"`
	Limits  *Limits  `json:"limits,omitempty" doc:"At most the operator's"`
	Network *Network `json:"network,omitempty" doc:"Without it the sandbox reaches nothing"`
	Group   string   `json:"group,omitempty" maxLength:"63" pattern:"^[a-z0-9_][a-z0-9_-]*$" example:"shop" doc:"The command reaches the sandboxes of this group by name"`
	Secrets []string `json:"secrets,omitempty" maxItems:"100" doc:"Names of stored secrets (demesne secret add). The command finds placeholders in the variables of these names; the network must allow the host of each"`
}

// CreateRequest asks for a sandbox that lives until it is removed or expires.
type CreateRequest struct {
	Settings
	Name       string      `json:"name,omitempty" maxLength:"63" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]*$" doc:"Unique; empty: a new one"`
	TTLSeconds int64       `json:"ttl_seconds,omitempty" minimum:"0" maximum:"2592000" doc:"Removed after so long without a command; 0: 48 hours"`
	Mounts     []HostMount `json:"mounts,omitempty" maxItems:"64" doc:"For the server's own user at its unix socket, and what the operator lists for others. Not beside a network of mode open"`
}

// HostMount is a file or directory of the server's machine in a sandbox. Its paths have no symbolic link, . or ..
type HostMount struct {
	Source string `json:"source" minLength:"1" maxLength:"4096" example:"/home/me/project"`
	Target string `json:"target,omitempty" maxLength:"4096" doc:"Path in the sandbox; empty: as source"`
	Mode   string `json:"mode,omitempty" enum:"ro,rw,cow" doc:"Empty: ro. With cow the directory stays as it is: demesne diff, apply and discard handle the changes"`
}

// Result is the outcome of a command.
type Result struct {
	Sandbox  string  `json:"sandbox" doc:"Id"`
	ExitCode int     `json:"exit_code"`
	Reason   string  `json:"reason" enum:"exited,signaled,timed-out,oom,disk,pids,budget,lost" doc:"Why it ended"`
	Detail   string  `json:"detail,omitempty" doc:"One line for a person"`
	Stdout   Output  `json:"stdout"`
	Stderr   Output  `json:"stderr"`
	Seconds  float64 `json:"seconds"`
	Spent
	Denied    []Denied `json:"denied,omitempty" doc:"Destinations that were refused"`
	Run       string   `json:"run,omitempty" doc:"Names what the command left in /out: see /v1/outputs"`
	Restarted bool     `json:"restarted,omitempty" doc:"The sandbox had lost its processes, and kept its files"`
	Missing   []string `json:"missing_secrets,omitempty" doc:"Secrets that a restarted sandbox lacks"`
	Warnings  []string `json:"warnings,omitempty" doc:"What was asked for and is above the operator's bounds, with what it was reduced to"`
}

// Spent is what a command used.
type Spent struct {
	CPU    float64 `json:"cpu_seconds,omitempty"`
	MaxRSS int64   `json:"max_rss_bytes,omitempty" doc:"Of its largest process"`
}

// Output is the end of a stream.
type Output struct {
	Text  string `json:"text"`
	Bytes int64  `json:"bytes" doc:"The size of the whole stream"`
	Cut   bool   `json:"truncated,omitempty" doc:"The text is the end of a longer stream"`
}

// Denied is a destination that a sandbox may not reach, or did not.
type Denied struct {
	Host   string `json:"host"`
	Port   uint16 `json:"port,omitempty" doc:"0: a name lookup"`
	Reason string `json:"reason"`
	Allow  string `json:"allow,omitempty" doc:"The rule that would allow it"`
	Times  int    `json:"times"`
	Failed bool   `json:"failed,omitempty" doc:"It was allowed, and failed, as by a name that does not resolve"`
}

// Started is the first event of a stream.
type Started struct {
	Sandbox string `json:"sandbox" doc:"Id"`
}

// Chunk is a piece of output in a stream. Text is set if the piece is valid UTF-8; no character is split over pieces.
type Chunk struct {
	Stream string `json:"stream" enum:"stdout,stderr"`
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
}

// Sandbox describes a sandbox.
type Sandbox struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Namespace string    `json:"namespace,omitempty" doc:"The creator's namespace; empty: the operator"`
	State     string    `json:"state" enum:"running,paused,ended,stopped,snapshot,unreadable"`
	Image     string    `json:"image,omitempty"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires,omitzero"`
	Execs     int       `json:"execs" doc:"Commands that run now"`
	Level     string    `json:"level,omitempty" doc:"full, degraded or minimal: see its receipt"`
	Limits    Limits    `json:"limits"`
	Network   Network   `json:"network"`
	Group     string    `json:"group,omitempty"`
	Ports     []Port    `json:"ports,omitempty" doc:"Published ports"`

	Warnings []string `json:"warnings,omitempty" doc:"In the answer to a request with limits: those above the operator's bounds, with what they were reduced to"`
}

// Port is a port in a sandbox that the server's machine can reach.
type Port struct {
	Listen string `json:"listen" example:"127.0.0.1:8080"`
	To     uint16 `json:"to" minimum:"1" doc:"Port on the sandbox's loopback"`
}

// SandboxFilter selects sandboxes, and a page of them. The zero value selects the first page of all.
type SandboxFilter struct {
	State     string // such as running
	Name      string // the beginning of the name
	Namespace string // for the operator, who sees all namespaces
	Oldest    bool   // the oldest first, and not the newest
	Limit     int    // sandboxes of one page, at most 1000; 0: 100
	Cursor    string // SandboxPage.Next of the page before
}

// SandboxPage is a page of sandboxes.
type SandboxPage struct {
	Items []Sandbox `json:"items" nullable:"false"`
	Next  string    `json:"next,omitempty" doc:"The cursor of the next page; absent: this is the last one"`
}

// Page is a list.
type Page[T any] struct {
	Items []T `json:"items" nullable:"false"`
}

// Queue counts the commands of /v1 and MCP: the caller's namespace's, or all for the operator.
type Queue struct {
	Running    int `json:"running"`
	Waiting    int `json:"waiting"`
	MaxRunning int `json:"max_running" doc:"More wait; 0: no bound"`
	MaxWaiting int `json:"max_waiting" doc:"More are refused with status 429"`
}

// Event is what happened to a sandbox, a command or a request of the host. Texts may come from sandboxes.
type Event struct {
	ID        uint64            `json:"id" doc:"Rises, also over restarts of the server"`
	Time      time.Time         `json:"time"`
	Type      string            `json:"type" example:"execution.completed"`
	Namespace string            `json:"namespace,omitempty"`
	Caller    string            `json:"caller,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty" doc:"Id"`
	Run       string            `json:"run,omitempty" doc:"Links the start of a command to its end"`
	Detail    map[string]string `json:"detail,omitempty"`
}

// AuditEntry is a line of the audit log.
type AuditEntry struct {
	Event
	Prev string `json:"prev" doc:"SHA-256 of the line before, in hexadecimal"`
}

// AuditEntries is a page of the audit log, the oldest entry first.
type AuditEntries struct {
	Entries []AuditEntry `json:"entries" nullable:"false"`
}

// AuditReport is the result of a verification of the audit log.
type AuditReport struct {
	Entries int      `json:"entries"`
	First   uint64   `json:"first" doc:"Above 1: older entries were removed"`
	Last    uint64   `json:"last"`
	SHA256  string   `json:"sha256" doc:"The sum of the last entry's line"`
	Wrong   []string `json:"wrong" nullable:"false" doc:"Empty: no entry was changed"`
}
