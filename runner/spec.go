// Package runner has the words about sandboxes: what one is to be ([Spec], with [Egress] and [Limits]), what to
// execute in it ([Command]), how that ended ([Result]) and what the kernel really enforced ([Receipt]).
//
// It is words only, which every other package may use without what is behind them. Package client finds or starts
// demesne-runner and asks it for sandboxes; package protocol is what the two say to each other; package engine is
// demesne-runner; package guest is PID 1 of a sandbox. None of the words is believed because of its type: the engine
// refuses what no sandbox can be.
package runner

import (
	"os"
	"time"
)

// Spec says what sandbox to make. The zero Spec is the host's own /usr, no inputs,
// a scratch workspace, default limits and no network but loopback. Paths are absolute and
// have no symbolic link in them.
type Spec struct {
	Name      string   `json:"name,omitempty"`   // unique among the live ones; empty: the id
	Image     string   `json:"image,omitempty"`  // what the caller calls it; "host" or empty without Rootfs
	Rootfs    *Rootfs  `json:"rootfs,omitempty"` // nil: the host's
	Inputs    []Input  `json:"inputs,omitempty"`
	Out       string   `json:"out"`                 // host directory bound at /out; absolute
	Workspace string   `json:"workspace,omitempty"` // host directory bound read-write at /workspace; empty: scratch
	User      *User    `json:"user,omitempty"`      // nil: the image's, else 0:0
	Limits    Limits   `json:"limits"`
	Nesting   bool     `json:"nesting,omitempty"`
	Require   Level    `json:"require,omitempty"` // fail rather than run with less
	Lifetime  Lifetime `json:"lifetime,omitempty"`
	Key       string   `json:"key,omitempty"`     // of a Persistent sandbox: see [client.Client.Create]
	TTL       Duration `json:"ttl,omitempty"`     // of a Persistent sandbox, since a command in it was started; 0: 48 h
	MaxAge    Duration `json:"max_age,omitempty"` // of a Persistent sandbox, used or not; 0: none
	// FreezeIdle has the processes of a Persistent sandbox hold still (see package freeze) when no command has run in it
	// for so long; the next command wakes them. 0: never.
	FreezeIdle Duration `json:"freeze_idle,omitempty"`
	Hostname   string   `json:"hostname,omitempty"` // empty: "demesne"
	Egress     *Egress  `json:"egress,omitempty"`   // nil: no network but loopback
	Publish    []Port   `json:"publish,omitempty"`  // nothing listens unless it is asked for
	Door       Door     `json:"door,omitempty"`     // whose caller made it; the runner sets it, whatever a caller sent
	Share      Door     `json:"share,omitempty"`    // of a Persistent sandbox of the command line: a door that may use it too

	// Given is what the caller of a sandbox with a Key asked for: the next call with the key is compared with it, argument by
	// argument. nil: [Arguments]. Replace has a sandbox that is there removed with its files, whatever it was made with.
	Given   []Argument `json:"given,omitempty"`
	Replace bool       `json:"replace,omitempty"`

	// Exposed is found out by [client.Client.Create]: others on this machine can reach Out or Workspace,
	// so not even for a moment may there be a set-user-ID file of the caller's.
	Exposed bool `json:"exposed,omitempty"`
	// Granted names the record of what the caller granted, see package given. The client writes it.
	Granted string `json:"granted,omitempty"`
}

// Rootfs is an image as its unpacked layers, or a directory, that is to be /. What a
// sandbox writes goes elsewhere: no layer and no directory is ever changed.
//
// [client.Client.Create] answers [ipc.CodeMissing] when layers are not unpacked for the ids
// that the runner has: unpack them (see [client.Enter]) and create again.
type Rootfs struct {
	Digest string   `json:"digest"`           // of the manifest, for the receipt; empty for Dir
	Store  string   `json:"store,omitempty"`  // absolute path of the image store
	Layers []string `json:"layers,omitempty"` // DiffIDs, the lowest first
	Dir    string   `json:"dir,omitempty"`    // instead of Layers: an absolute path
	User   string   `json:"user,omitempty"`   // the image's USER: name, uid, name:group, uid:gid, or empty

	// What the image says of every command in it. A command's own come after these.
	Env        []string `json:"env,omitempty"`         // NAME=VALUE
	WorkingDir string   `json:"working_dir,omitempty"` // where a command starts that names no directory; empty: /workspace
}

// Input is a file or directory of the host, read-only at /in/Name, or a socket that commands may connect to there.
type Input struct {
	Path   string `json:"path"`             // absolute
	Name   string `json:"name"`             // one path element
	Socket bool   `json:"socket,omitempty"` // Path is a unix socket; without this none is given
}

// User is who a command runs as, inside.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Lifetime says what ends a sandbox.
type Lifetime string

const (
	// OneShot dies with the connection that made it.
	OneShot Lifetime = ""
	// Persistent lives until its TTL or stop, whoever dies. Its files are on a disk where
	// that can be (the receipt says), and outlive its processes: see [client.SandboxRoot].
	Persistent Lifetime = "persistent"
)

// How long a runner stays after its last sandbox and caller. The default is long enough for a
// shell loop, a git hook or the next call of an agent's shell.
const (
	DefaultLinger = 10 * time.Second
	MaxLinger     = time.Hour
)

// Limits bounds a sandbox. Zero is the default (see limits.Default), negative none.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPUs   float64 `json:"cpus,omitempty"`   // processors' worth of time; 0: no limit
	PIDs   int64   `json:"pids,omitempty"`   // processes and threads
	Disk   int64   `json:"disk,omitempty"`   // bytes, of /, /out and /workspace each
}

// Duration is a time.Duration that reads and writes as "1m30s" in JSON.
type Duration time.Duration

// MarshalText writes d as time.Duration does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Command says what to execute in a sandbox.
type Command struct {
	Argv    []string
	Env     []string      // K=V, added to the sandbox's own few; later ones win
	Dir     string        // empty: /workspace
	User    *User         // nil: the sandbox's
	Timeout time.Duration // 0: none

	// Pipe ends or /dev/null: the command gets these very descriptors, so they must
	// not be the caller's terminal, a socket, or a file it could reopen. nil is
	// /dev/null. Ignored with TTY.
	Stdin, Stdout, Stderr *os.File

	// TTY asks for a terminal made inside; its controlling end is [client.Process.Terminal].
	TTY *Winsize

	// Secrets must be among those that the sandbox was started with, or the command is refused.
	Secrets []Secret

	// Account asks for the sandbox's receipt in the result: that of when the command was started.
	Account bool
}

// Winsize is a terminal's size in characters.
type Winsize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Reason says why a command ended.
type Reason string

// The reasons there are.
const (
	Exited   Reason = "exited"    // by itself: ExitCode is its own
	Signaled Reason = "signaled"  // by a signal: ExitCode is 128+n
	TimedOut Reason = "timed-out" // ExitCode is 124
	OOM      Reason = "oom"       // the memory limit; ExitCode is 137
	DiskFull Reason = "disk"      // the disk limit; ExitCode is 137
	PIDLimit Reason = "pids"      // the limit on processes, where they are counted; ExitCode is 137
	Lost     Reason = "lost"      // the runner or PID 1 went away; ExitCode is 125
)

// Result is how a command ended.
type Result struct {
	Sandbox   string    `json:"sandbox"`
	ExitCode  int       `json:"exit_code"`
	Signal    int       `json:"signal,omitempty"`
	Reason    Reason    `json:"reason"`
	Detail    string    `json:"detail,omitempty"` // one line for a person, when Reason is not Exited
	Out       string    `json:"output_dir"`
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`
	Denied    []Blocked `json:"denied,omitempty"` // of the network, while the command ran
	EgressLog string    `json:"egress_log,omitempty"`
	MaxRSS    int64     `json:"max_rss_bytes,omitempty"`
	CPU       float64   `json:"cpu_seconds,omitempty"`
	Receipt   *Receipt  `json:"receipt,omitempty"` // only if [Command.Account] asked for it
	Trace     []Stage   `json:"trace,omitempty"`

	// Restarted says that the sandbox had lost its processes, and the command, the first one since, found its files only.
	// Copies and file tools do not count as commands.
	Restarted bool `json:"restarted,omitempty"`
	// MissingSecrets are the names of those that a sandbox was restarted without, of which the same is true.
	MissingSecrets []string `json:"missing_secrets,omitempty"`
	// Replaced says that the sandbox took the place of another one of its key, whose files were removed.
	Replaced bool `json:"replaced,omitempty"`
}

// Stage is one step of making a sandbox and how long it took.
type Stage struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Info is what list and inspect tell of a sandbox.
type Info struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Out     string    `json:"output_dir"`
	PID     int       `json:"pid,omitempty"` // of PID 1, in the caller's pid namespace
	Execs   int       `json:"execs"`         // running commands
	Spec    Spec      `json:"spec"`
	Receipt *Receipt  `json:"receipt,omitempty"`
	Result  *Result   `json:"result,omitempty"` // of the last command that ended
}

// State is a sandbox's.
type State string

// The states there are.
const (
	Running State = "running"
	Frozen  State = "frozen" // running, and its processes hold still until the next command: see Spec.FreezeIdle
	Ended   State = "ended"
	Stopped State = "stopped" // no process is left, the files are: the next command starts it again

	Snapshot State = "snapshot" // files to make sandboxes of: see [client.Client.Fork]
)
