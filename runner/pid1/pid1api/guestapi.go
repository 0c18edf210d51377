// Package guestapi is what is said on a guest socket: demesne-runner calls, and demesne-init, PID 1 of the
// sandbox, answers and reports exits.
//
//	runner                              init
//	  │ setup {landlock, seccomp} ───────▶│  restricts itself, once, for all that follow
//	  │◀─────────────── {what now holds} ─│
//	  │ guest.exec {argv, …} + stdio ────▶│  fork, execve
//	  │◀──────────────────────── {pid} ───│
//	  │ guest.signal {exec, signal} ─────▶│
//	  │◀─────── guest.exited {exec, …} ───│  event
//	  ╳ EOF                               │  PID 1 exits, the kernel kills the rest
//
// It is words alone. How they travel is package wire's business, what PID 1 does is package guest's, and what
// is asked of it for which sandbox is package engine's.
package pid1api

import (
	"time"

	"demesne/runner/ipc"
)

// The operations.
const (
	OpSetup  ipc.Op = "guest.setup"
	OpExec   ipc.Op = "guest.exec"
	OpSignal ipc.Op = "guest.signal"
	OpExited ipc.Op = "guest.exited"
)

// Setup is the body of [OpSetup]. It is sent once, first.
type Setup struct {
	Landlock  []PathRule     `json:"landlock,omitempty"` // empty: no filesystem rules (nesting)
	Scoped    bool           `json:"scoped"`             // Landlock's abstract-socket and signal scopes
	NoTCP     bool           `json:"no_tcp,omitempty"`   // Landlock denies TCP bind and connect (only where there is no netns)
	Seccomp   SeccompOptions `json:"seccomp"`
	Subreaper bool           `json:"sentry,omitempty"`    // not PID 1 of a pid namespace: be a subreaper and kill what is left
	KeepCaps  []uint         `json:"keep_caps,omitempty"` // capability numbers that commands have (nesting: CAP_SETFCAP)
	RootCaps  []uint         `json:"root_caps,omitempty"` // those that only commands of uid 0 have
}

// PathRule grants access below Path, as Landlock means it.
type PathRule struct {
	Path   ipc.Bytes `json:"path"`
	Access Access    `json:"access"`
}

// Access is what a PathRule grants.
type Access string

// The accesses there are.
const (
	AccessReadExec  Access = "read-exec"  // read, list, execute
	AccessReadWrite Access = "read-write" // all but making device nodes and device ioctls
	AccessDevice    Access = "device"     // read-write with ioctls, for terminals
)

// SeccompOptions says which parts of the deny-list to leave out or add.
type SeccompOptions struct {
	Nesting  bool `json:"nesting,omitempty"`   // allow namespaces and the mount API
	NoSUID   bool `json:"no_suid,omitempty"`   // refuse to set S_ISUID and S_ISGID
	NoSocket bool `json:"no_socket,omitempty"` // socketpair(2) only (where there is no mount namespace: a path leads to every socket of the host)
	FakeRoot bool `json:"fake_root,omitempty"` // chown, setuid, mknod … answer 0 and do nothing
}

// Facts is the reply: what was verified to hold, by trying it.
type Facts struct {
	LandlockABI   int           `json:"landlock_abi"`   // 0: the kernel has none
	LandlockFS    bool          `json:"landlock_fs"`    // a forbidden mknod was refused by Landlock
	LandlockScope bool          `json:"landlock_scope"` // scopes applied (ABI ≥ 6)
	Seccomp       string        `json:"seccomp"`        // sha256 of the filter as loaded, hex; empty: none
	SeccompLen    int           `json:"seccomp_len"`    // BPF instructions
	NoNewPrivs    bool          `json:"no_new_privs"`
	CapBounding   uint64        `json:"cap_bounding"`
	CapEffective  uint64        `json:"cap_effective"` // of what a command gets, not of PID 1
	ProcMasked    bool          `json:"proc_masked"`   // /proc/sys is not writable, /proc/kcore not readable
	SysReadOnly   bool          `json:"sys_read_only"`
	CoreLimit     uint64        `json:"core_limit"`         // RLIMIT_CORE of all commands, which they cannot change
	Landlocked    time.Duration `json:"landlocked"`         // how long Landlock took
	Filtered      time.Duration `json:"filtered"`           // how long seccomp took
	Problems      []string      `json:"problems,omitempty"` // asked for, did not hold: "landlock: …"
}

// Exec is the body of [OpExec]. Descriptors: stdin, stdout, stderr, each
// optional (/dev/null instead); none of them with TTY.
type Exec struct {
	Exec    uint64      `json:"exec"` // chosen by the runner, unique in the sandbox
	Argv    []ipc.Bytes `json:"argv"` // Argv[0] is looked up in the PATH of Env
	Env     []ipc.Bytes `json:"env"`
	Dir     ipc.Bytes   `json:"dir"`
	UID     uint32      `json:"uid"`
	GID     uint32      `json:"gid"`
	Groups  []uint32    `json:"groups,omitempty"`
	SetIDs  bool        `json:"set_ids"`       // change to UID/GID; false: the only id there is
	TTY     *int        `json:"tty,omitempty"` // open /dev/pts/N as stdio and controlling terminal
	Rlimits []Rlimit    `json:"rlimits,omitempty"`
}

// Rlimit is setrlimit(2)'s resource and value, soft and hard alike.
type Rlimit struct {
	Resource int    `json:"resource"`
	Value    uint64 `json:"value"`
}

// Executed is the reply to [OpExec]. A command that is not there or not
// executable is a [ipc.Error] with CodeNotFound or CodeNotExecutable.
type Executed struct {
	PID int `json:"pid"` // as the sandbox sees it
}

// Signal is the body of [OpSignal].
type Signal struct {
	Exec   uint64 `json:"exec"`
	Signal int    `json:"signal"`
	// Group signals the command's whole process group, else only the command.
	Group bool `json:"group"`
}

// Exited is the body of [OpExited].
type Exited struct {
	Exec   uint64        `json:"exec"`
	Status uint32        `json:"status"`  // wait(2)'s status word
	MaxRSS int64         `json:"max_rss"` // KiB, getrusage(2)
	UTime  time.Duration `json:"utime"`
	STime  time.Duration `json:"stime"`
}
