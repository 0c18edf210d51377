// Package runner defines the data types of sandboxes. [Spec] is the requested sandbox, with [Egress] and [Limits].
// [Command] is a command to execute in it, [Result] the command's result. [Receipt] records what the kernel
// enforced.
//
// The package has types only, so any package can import it without the implementation. Package client finds or
// starts demesne-runner and requests sandboxes from it. Package api is the protocol between the two. Package engine
// is demesne-runner. Package pid1 is PID 1 of a sandbox. The engine validates every value and rejects those that no
// sandbox can have.
package runner

import (
	"cmp"
	"net/netip"
	"os"
	"time"
)

// Spec describes the sandbox to create. The zero Spec uses the host's /usr, no inputs, a scratch workspace, default limits, and
// only the loopback network. Paths are absolute and contain no symbolic links.
type Spec struct {
	Name      string   `json:"name,omitempty"`   // unique among live sandboxes; empty: the id
	Image     string   `json:"image,omitempty"`  // the caller's name for the image; "host" or empty without Rootfs
	Rootfs    *Rootfs  `json:"rootfs,omitempty"` // nil: the host's files
	Inputs    []Input  `json:"inputs,omitempty"`
	Out       string   `json:"out"`                 // host directory bound at /out; absolute path
	Workspace string   `json:"workspace,omitempty"` // host directory bound read-write at /workspace; empty: scratch
	Mounts    []Mount  `json:"mounts,omitempty"`    // further files and directories of the host, in order; later ones hide earlier ones
	User      *User    `json:"user,omitempty"`      // nil: the image's user, else 0:0
	Limits    Limits   `json:"limits"`
	Nesting   bool     `json:"nesting,omitempty"`
	Require   Level    `json:"require,omitempty"` // fail rather than run at a lower level
	Lifetime  Lifetime `json:"lifetime,omitempty"`
	Key       string   `json:"key,omitempty"`     // for a Persistent sandbox: see [client.Client.Create]
	TTL       Duration `json:"ttl,omitempty"`     // for a Persistent sandbox, counted from the start of its last command; 0: 48 h
	MaxAge    Duration `json:"max_age,omitempty"` // for a Persistent sandbox, used or not; 0: no limit
	// PauseIdle pauses the processes of a Persistent sandbox (SIGSTOP) after no command has run in it
	// for this long. The next command resumes them. 0: never.
	PauseIdle Duration `json:"pause_idle,omitempty"`
	Interior
	Egress   *Egress  `json:"egress,omitempty"`   // nil: only the loopback network
	Publish  []Port   `json:"publish,omitempty"`  // nothing listens by default
	Frontend Frontend `json:"frontend,omitempty"` // the creator's frontend; the runner sets it and ignores the caller's value
	Share    Frontend `json:"share,omitempty"`    // another frontend that may use a Persistent sandbox of the command line

	// Given is the request for a sandbox with a Key. The next call with the same key is compared with it, argument
	// by argument. nil means [Spec.Arguments]. Replace removes an existing sandbox of the key, with its files, whatever
	// its arguments were.
	Given   []Argument `json:"given,omitempty"`
	Replace bool       `json:"replace,omitempty"`

	// Defaults hold for every command.
	Defaults Defaults `json:"defaults,omitzero"`

	Handover
}

// Handover holds the fields of a [Spec] that [client.Client.Create] sets.
type Handover struct {
	// Exposed means that other users of this machine can reach Out or Workspace. The sandbox must then never, not even
	// for a moment, create a set-user-ID file of the caller there.
	Exposed bool `json:"exposed,omitempty"`
	// Granted names the record of the caller's grants; see package grants. If it is empty, the runner writes the record.
	Granted string `json:"granted,omitempty"`
	// Slot names the place that [client.Client.Reserve] returned. Without one, Create takes a place of its own.
	Slot string `json:"slot,omitempty"`
}

// Defaults are settings of every command in a sandbox. They override the image's, and a command's own override them.
type Defaults struct {
	Env  []string `json:"env,omitempty"`  // NAME=VALUE
	Path []string `json:"path,omitempty"` // absolute directories at the front of PATH, unless a command's own Env has PATH
	Dir  string   `json:"dir,omitempty"`  // the directory to start in; absolute; empty: the image's, else /workspace
}

// AsideDir is the directory of in, out and workspace in a sandbox with [Rootfs].Aside.
const AsideDir = "/.demesne"

// Rootfs is the content of /: the unpacked layers of an image, or a directory. A sandbox never changes a layer or
// the directory; its writes go elsewhere.
//
// [client.Client.Create] returns [ipc.CodeMissing] if layers are not unpacked for the ids of the runner. Unpack
// them (see [client.Client.Userns]) and call Create again.
type Rootfs struct {
	Digest string   `json:"digest"`           // of the manifest, for the receipt; empty with Dir
	Store  string   `json:"store,omitempty"`  // absolute path of the image store
	Layers []string `json:"layers,omitempty"` // DiffIDs, the lowest layer first
	Dir    string   `json:"dir,omitempty"`    // absolute path; replaces Layers
	User   string   `json:"user,omitempty"`   // the image's USER: name, uid, name:group, uid:gid, or empty

	// Env and WorkingDir are the image's settings for every command. The settings of a command override them.
	Env        []string `json:"env,omitempty"`         // NAME=VALUE
	WorkingDir string   `json:"working_dir,omitempty"` // directory of a command that names none; empty: /workspace
	StopSignal int      `json:"stop_signal,omitempty"` // asks the processes to end; 0: SIGTERM

	// Aside moves /in, /out and /workspace below [AsideDir], so that the image's own directories of these names show. For
	// building images: a Persistent sandbox with it is removed when its creator's connection ends.
	Aside bool `json:"aside,omitempty"`
}

// NoLinks ends the mode of a --mount whose source must have no symbolic link in its path.
const NoLinks = ",nolinks"

// Mount is a file or directory of the host at a path of its own. A writable one must be a directory, and is treated as
// Workspace is: at the end the runner settles its files. Mode "open" and Learn are refused beside any Mount, as beside
// an Input; see [Egress.OpenWithInputs].
//
// Missing parents of Target are made in the sandbox's own tree. Inside another mount of the host the mount point must
// exist, and nothing is made there. Symbolic links in Target are refused. A read-only Mount inside a writable one stays
// where it is: no process of the sandbox can rename or remove it, nor a directory between the two.
//
// With Upper, the sandbox sees Source and changes only what it sees: an overlay keeps the changes in Upper. Then Source
// must be a directory on one file system, and neither it nor a directory below may have mounts that matter.
type Mount struct {
	Source   string `json:"source"` // absolute
	Target   string `json:"target"` // absolute and clean; not /, /in, /out, /proc, /sys or /dev, nor below one of the last three
	ReadOnly bool   `json:"readonly,omitempty"`
	// Upper is a directory of the host, below [client.ChangesRoot], which holds only the changes of this mount.
	Upper string `json:"upper,omitempty"`
	// Whole means that the disk limit bounds everything in the directory, and not only what this sandbox adds.
	Whole bool `json:"whole,omitempty"`
	// Socket means that Source is a unix socket that commands may connect to. It is read-only, and no data of the host.
	Socket bool `json:"socket,omitempty"`
	// Server names the frontend that listens on Source, in a directory of its own. The client that starts the sandbox starts it, and it
	// ends with the sandbox's processes.
	Server string `json:"server,omitempty"`
}

// Served returns the sockets of s that have a server.
func (s *Spec) Served() (sockets []string) {
	for _, m := range s.Mounts {
		if m.Server != "" {
			sockets = append(sockets, m.Source)
		}
	}
	return sockets
}

// Interior describes what a sandbox has inside that comes from no file of the host.
type Interior struct {
	Hostname string  `json:"hostname,omitempty"` // empty: "demesne"
	Hosts    []Host  `json:"hosts,omitempty"`    // further lines of /etc/hosts; the network rules decide about the address
	Tmpfs    []Tmpfs `json:"tmpfs,omitempty"`
}

// Host is a name in /etc/hosts.
type Host struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
}

// Tmpfs is an empty directory in memory, which is discarded when the sandbox stops. Mounts that have it above them are
// made afterwards. Target is bound by the rules of Mount.
type Tmpfs struct {
	Target string `json:"target"`
	Size   int64  `json:"size,omitempty"` // bytes; 0: Limits.Disk
}

// String returns "SOURCE:TARGET", with ":ro" if m is read-only, or ":cow" if it has an Upper.
func (m Mount) String() string {
	switch {
	case m.ReadOnly:
		return m.Source + ":" + m.Target + ":ro"
	case m.Upper != "":
		return m.Source + ":" + m.Target + ":cow"
	}
	return m.Source + ":" + m.Target
}

// Written returns the directory of the host that the sandbox writes to; empty: none.
func (m Mount) Written() string {
	switch {
	case m.ReadOnly:
		return ""
	case m.Upper != "":
		return m.Upper
	}
	return m.Source
}

// Input is a read-only file or directory of the host at /in/Name, or a socket there that commands may connect to.
type Input struct {
	Path   string `json:"path"`             // absolute
	Name   string `json:"name"`             // one path element
	Socket bool   `json:"socket,omitempty"` // Path is a unix socket; without this flag sockets are refused
}

// User is the identity of a command inside the sandbox.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Lifetime determines when a sandbox ends.
type Lifetime string

const (
	// OneShot sandboxes end with their first command, or with the connection that created them.
	OneShot Lifetime = ""
	// Attached sandboxes end with the connection that created them, or when they are removed. Any number of commands
	// can run in one.
	Attached Lifetime = "attached"
	// Persistent sandboxes live until their TTL or a stop, independent of any caller. Their files are on a disk
	// where possible (the receipt reports it) and outlive their processes: see [client.SandboxRoot].
	Persistent Lifetime = "persistent"
)

// MostSandboxes is how many persistent sandboxes a user has at most by default.
const MostSandboxes = 64

// Quota bounds the persistent sandboxes, which include forks. Snapshots do not count.
type Quota struct {
	User     int `json:"user,omitempty"`     // most sandboxes of the user, of all frontends together; 0: MostSandboxes
	Frontend int `json:"frontend,omitempty"` // most sandboxes of the caller's frontend; 0: no bound of its own
}

// How long a runner lingers after its last sandbox and caller. The default covers a shell loop, a git hook or the
// next call of an agent's shell.
const (
	DefaultLinger = 10 * time.Second
	MaxLinger     = time.Hour
)

// Limits bounds a sandbox. Zero means the default (see limits.Default), negative means no limit.
type Limits struct {
	Memory int64   `json:"memory,omitempty"` // bytes
	CPUs   float64 `json:"cpus,omitempty"`   // processor time in processors; 0: no limit
	PIDs   int64   `json:"pids,omitempty"`   // processes and threads
	Disk   int64   `json:"disk,omitempty"`   // bytes, for each of /, /out and /workspace
	Files  int64   `json:"files,omitempty"`  // open descriptors of each process; at most three quarters of the runner's own
}

// Over returns below with the limits of l that are not zero in the place of its own.
func (l Limits) Over(below Limits) Limits {
	return Limits{
		Memory: cmp.Or(l.Memory, below.Memory), CPUs: cmp.Or(l.CPUs, below.CPUs), PIDs: cmp.Or(l.PIDs, below.PIDs),
		Disk: cmp.Or(l.Disk, below.Disk), Files: cmp.Or(l.Files, below.Files),
	}
}

// Less returns l without the memory and the processors of lent. A limit that l has remains one.
func (l Limits) Less(lent Limits) Limits {
	if l.Memory > 0 {
		l.Memory = max(l.Memory-lent.Memory, 1)
	}
	if l.CPUs > 0 {
		l.CPUs = max(l.CPUs-lent.CPUs, 1e-6)
	}
	return l
}

// Duration is a time.Duration that is encoded as "1m30s" in JSON.
type Duration time.Duration

// MarshalText formats d as time.Duration.String does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the format of time.ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Command describes a command to execute in a sandbox. If the program of Argv does not exist or is not executable, the
// command lines of Else are tried in turn; an error is the last one's. In Else the word /in/NAME stands for that
// input, even without a mount namespace.
type Command struct {
	Argv    []string
	Else    [][]string
	Env     []string      // K=V, appended to the sandbox's environment; later entries win
	Path    []string      // absolute directories of the caller's PATH; on the host's files, PATH gets those that exist inside
	Dir     string        // empty: /workspace
	User    *User         // nil: the sandbox's
	Timeout time.Duration // 0: no limit

	// Stdin, Stdout and Stderr are pipe ends or /dev/null. The command gets these very descriptors, so they must
	// not be the caller's terminal, a socket, or a file that the command could reopen. nil means /dev/null. Ignored
	// with TTY.
	Stdin, Stdout, Stderr *os.File
	// Extra become descriptors 3 and on, and must be like Stdin. There are at most three. Ignored with TTY.
	Extra []*os.File

	// TTY requests a terminal, created inside the sandbox. [client.Process.Terminal] is its controlling end.
	TTY *Winsize

	// Secrets must be among those that the sandbox was started with. Otherwise the command is refused.
	Secrets []Secret

	// Account requests the sandbox's receipt, as of the start of the command, in the result.
	Account bool

	// Alone kills every process that is left in the sandbox when the command has ended, before its result is reported.
	Alone bool
}

// Winsize is the size of a terminal in characters.
type Winsize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Reason is the cause of a command's end.
type Reason string

// The possible reasons.
const (
	Exited     Reason = "exited"    // by itself: ExitCode is the command's own
	Signaled   Reason = "signaled"  // by a signal: ExitCode is 128+n
	TimedOut   Reason = "timed-out" // ExitCode is 124
	OOM        Reason = "oom"       // the memory limit; ExitCode is 137
	DiskFull   Reason = "disk"      // the disk limit; ExitCode is 137
	PIDLimit   Reason = "pids"      // the limit on processes, where they can be counted; ExitCode is 137
	OverBudget Reason = "budget"    // an agent's bound on cost, requests or time; ExitCode is 137
	Lost       Reason = "lost"      // the runner or PID 1 died; ExitCode is 125
)

// Result describes how a command ended. The tags doc are the descriptions in docs/reference.
type Result struct {
	Sandbox   string    `json:"sandbox" doc:"Id of the sandbox."`
	ExitCode  int       `json:"exit_code" doc:"Exit code of the command, or the code for the reason: 124 timed-out, 137 oom, disk, pids and budget, 125 lost, 128+n signaled."`
	Signal    int       `json:"signal,omitempty" doc:"Number of the signal that ended the command."`
	Reason    Reason    `json:"reason" doc:"Cause of the end."`
	Detail    string    `json:"detail,omitempty" doc:"One line for a person. Absent if the reason is exited."`
	Out       string    `json:"output_dir" doc:"Host directory that is /out in the sandbox."`
	Started   time.Time `json:"started" doc:"Start of the command, in UTC."`
	Seconds   float64   `json:"seconds" doc:"Duration of the command."`
	Denied    []Blocked `json:"denied,omitempty" doc:"Network destinations that were denied, that a byte budget cut, or whose names do not resolve, while the command ran."`
	EgressLog string    `json:"egress_log,omitempty" doc:"File with the decisions about the network, one JSON object a line."`
	Spent
	Receipt *Receipt `json:"receipt,omitempty" doc:"What the kernel enforced."` // only if [Command.Account] requested it
	Trace   []Stage  `json:"trace,omitempty" doc:"Steps of the run with their durations. The names may change with each version."`

	// Restarted and MissingSecrets are reported to the first command since the restart. Copies and file tools do not count
	// as commands.
	Restarted      bool     `json:"restarted,omitempty" doc:"The persistent sandbox had lost its processes, and this command found only its files."`
	MissingSecrets []string `json:"missing_secrets,omitempty" doc:"Names of secrets that the restarted sandbox lacks."`
	Replaced       bool     `json:"replaced,omitempty" doc:"The sandbox replaced another one of the same key, whose files were removed."`
}

// Spent is what a command used. Each result that a frontend returns embeds it.
type Spent struct {
	MaxRSS int64   `json:"max_rss_bytes,omitempty" doc:"Peak resident memory of the largest process of the command."`
	CPU    float64 `json:"cpu_seconds,omitempty" doc:"Processor time of the command."`
}

// Stage is one step of creating a sandbox and its duration.
type Stage struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Info is the output of list and inspect for one sandbox.
type Info struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	State   State     `json:"state"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	Out     string    `json:"output_dir"`
	PID     int       `json:"pid,omitempty"` // of PID 1, in the caller's pid namespace
	Execs   int       `json:"execs"`         // number of running commands
	Spec    Spec      `json:"spec"`
	Receipt *Receipt  `json:"receipt,omitempty"`
	Result  *Result   `json:"result,omitempty"` // of the last command that ended
}

// OfBuild reports whether a sandbox, or a snapshot of one, belongs to the build of an image, which removes it: see Rootfs.Aside.
func (s *Spec) OfBuild() bool { return s.Rootfs != nil && s.Rootfs.Aside }

// Usage is what a sandbox uses at one moment. Only its processes since its last start count.
type Usage struct {
	CPU       float64 `json:"cpu_seconds"`
	Memory    int64   `json:"memory_bytes"`
	Cache     int64   `json:"cache_bytes,omitempty"` // part of Memory; 0 without a control group
	Processes int     `json:"processes"`
}

// State is the state of a sandbox.
type State string

// The possible states.
const (
	Running State = "running"
	Paused  State = "paused" // running, with its processes stopped until the next command: see Spec.PauseIdle
	Ended   State = "ended"
	Stopped State = "stopped" // no processes, only files: the next command restarts the sandbox

	Snapshot State = "snapshot" // files from which sandboxes are made: see [client.Client.Fork]
	// Unreadable is a sandbox without processes whose record cannot be read. Only its ID is known.
	Unreadable State = "unreadable"
)
