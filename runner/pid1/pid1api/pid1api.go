// Package pid1api defines the messages on the socket between demesne-runner and demesne-init, PID 1 of the
// sandbox. The runner sends requests; init answers them and reports exits.
//
//	runner                              init
//	  │ guest.setup {landlock, seccomp} ─▶│  restricts itself, once, and thereby all commands
//	  │◀─────────────── {what now holds} ─│
//	  │ guest.probe ─────────────────────▶│  tries to connect; only if the runner performs that
//	  │ guest.exec {argv, …} + stdio ────▶│  fork, execve
//	  │◀──────────────────────── {pid} ───│
//	  │ guest.signal {exec, signal} ─────▶│
//	  │◀─────── guest.exited {exec, …} ───│  event
//	  ╳ EOF                               │  PID 1 exits, the kernel kills the rest
//
// It contains only types and constants. Package ipc carries the messages, package pid1 implements PID 1, and
// packages sandbox and container make the requests for each sandbox.
//
// It is apart from package pid1 because the runner speaks this protocol too, and must not link PID 1.
package pid1api

import (
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner/ipc"
)

// Operations.
const (
	OpSetup  ipc.Op = "guest.setup"
	OpProbe  ipc.Op = "guest.probe"
	OpExec   ipc.Op = "guest.exec"
	OpSignal ipc.Op = "guest.signal"
	OpExited ipc.Op = "guest.exited"
)

// FileListener is the descriptor in the reply to [OpSetup] by which the runner answers supervised system calls.
const FileListener = "listener"

// Probed is the error of connect(2) with an address of length 0 if the runner performs the call. The kernel's is EINVAL.
const Probed = unix.EHOSTDOWN

// Setup is the body of [OpSetup], sent once as the first request.
type Setup struct {
	Root      ipc.Bytes      `json:"root,omitempty"`     // directory to become / by chroot(2), before all else; empty: none
	Landlock  []PathRule     `json:"landlock,omitempty"` // empty: no file system rules (nesting)
	Scoped    bool           `json:"scoped"`             // apply Landlock's abstract-socket and signal scopes
	NoTCP     bool           `json:"no_tcp,omitempty"`   // Landlock denies TCP bind and connect (only without a network namespace)
	Seccomp   SeccompOptions `json:"seccomp"`
	Subreaper bool           `json:"sentry,omitempty"`    // not PID 1 of a pid namespace: become a subreaper and kill remaining descendants
	KeepCaps  []uint         `json:"keep_caps,omitempty"` // capability numbers of all commands (nesting: CAP_SETFCAP)
	RootCaps  []uint         `json:"root_caps,omitempty"` // capability numbers of commands of uid 0 only
}

// PathRule grants access below Path, with Landlock's semantics.
type PathRule struct {
	Path   ipc.Bytes `json:"path"`
	Access Access    `json:"access"`
}

// Access is the access that a PathRule grants.
type Access string

// Values of Access.
const (
	AccessReadExec  Access = "read-exec"  // read, list, execute
	AccessReadWrite Access = "read-write" // everything except making device nodes and device ioctls
	AccessDevice    Access = "device"     // read-write with ioctls, for terminals
)

// SeccompOptions selects parts of the deny-list to omit or add.
type SeccompOptions struct {
	Nesting    bool `json:"nesting,omitempty"`    // allow namespaces and the mount API
	NoSUID     bool `json:"no_suid,omitempty"`    // refuse to set S_ISUID and S_ISGID
	NoSocket   bool `json:"no_socket,omitempty"`  // allow only socketpair(2) (without a mount namespace a path reaches every socket of the host)
	Supervised bool `json:"supervised,omitempty"` // as NoSocket, but the runner makes and connects TCP sockets
	FakeRoot   bool `json:"fake_root,omitempty"`  // chown, setuid, mknod … return 0 and do nothing
}

// Facts is the reply to [OpSetup]: the restrictions that were verified by testing them.
type Facts struct {
	LandlockABI   int           `json:"landlock_abi"`   // 0: the kernel has no Landlock
	LandlockFS    bool          `json:"landlock_fs"`    // Landlock refused a forbidden mknod
	LandlockScope bool          `json:"landlock_scope"` // scopes applied (ABI ≥ 6)
	Seccomp       string        `json:"seccomp"`        // sha256 of the loaded filter, hex; empty: no filter
	SeccompLen    int           `json:"seccomp_len"`    // BPF instructions
	NoNewPrivs    bool          `json:"no_new_privs"`
	CapBounding   uint64        `json:"cap_bounding"`
	CapEffective  uint64        `json:"cap_effective"` // capabilities that a command gets, not PID 1's
	ProcMasked    bool          `json:"proc_masked"`   // /proc/sys is not writable and /proc/kcore is not readable
	SysReadOnly   bool          `json:"sys_read_only"`
	CoreLimit     uint64        `json:"core_limit"`         // RLIMIT_CORE of all commands, which they cannot change
	Landlocked    time.Duration `json:"landlocked"`         // duration of applying Landlock
	Filtered      time.Duration `json:"filtered"`           // duration of loading seccomp
	Problems      []string      `json:"problems,omitempty"` // requested but not in effect: "landlock: …"
}

// Exec is the body of [OpExec]. It carries the descriptors stdin, stdout and stderr. Each is optional and
// defaults to /dev/null. With TTY it carries none.
type Exec struct {
	Exec    uint64        `json:"exec"`           // chosen by the runner, unique in the sandbox
	Argv    []ipc.Bytes   `json:"argv"`           // Argv[0] is looked up in the PATH of Env
	Else    [][]ipc.Bytes `json:"else,omitempty"` // further command lines, tried in turn
	Env     []ipc.Bytes   `json:"env"`
	Path    []ipc.Bytes   `json:"path,omitempty"` // directories that PATH gets too, if the command's user can enter them
	Dir     ipc.Bytes     `json:"dir"`
	UID     uint32        `json:"uid"`
	GID     uint32        `json:"gid"`
	Groups  []uint32      `json:"groups,omitempty"`
	SetIDs  bool          `json:"set_ids"`       // change to UID/GID; false: keep the only id available
	TTY     *int          `json:"tty,omitempty"` // open /dev/pts/N as stdio and controlling terminal
	Rlimits []Rlimit      `json:"rlimits,omitempty"`
}

// Rlimit is the resource and value of setrlimit(2), for both the soft and the hard limit.
type Rlimit struct {
	Resource int    `json:"resource"`
	Value    uint64 `json:"value"`
}

// Executed is the reply to [OpExec]. A missing or non-executable command yields an [ipc.Error] with
// CommandNotFound or CodeNotExecutable.
type Executed struct {
	PID int `json:"pid"` // in the sandbox's pid namespace
}

// Signal is the body of [OpSignal].
type Signal struct {
	Exec   uint64 `json:"exec"`
	Signal int    `json:"signal"`
	// Group signals the command's whole process group instead of the command alone.
	Group bool `json:"group"`
	// All kills every process of the sandbox in place of one command. The reply comes when none is left.
	All bool `json:"all,omitempty"`
}

// Exited is the body of [OpExited].
type Exited struct {
	Exec   uint64        `json:"exec"`
	Status uint32        `json:"status"`  // status word of wait(2)
	MaxRSS int64         `json:"max_rss"` // KiB, getrusage(2)
	UTime  time.Duration `json:"utime"`
	STime  time.Duration `json:"stime"`
}
