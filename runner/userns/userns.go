// Package userns puts demesne-runner into its outer user namespace before the Go runtime starts.
//
// A Go program cannot do this by itself. The kernel refuses unshare(CLONE_NEWUSER) to a process with more than one
// thread (user_namespaces(7)). A child made with SysProcAttr.Cloneflags loses its capabilities at execve, which runs
// before newuidmap has written the map. So a C constructor does it, like libcontainer's nsenter, whenever
// [EnvControl] is set:
//
//	caller                    A (reaper)                 B (the runner)
//	  │── execve ──────────────▶│── fork ─────────────────▶│
//	  │◀─────────── 'p' pid ────│                          │ unshare user, then mount+cgroup; mount
//	  │◀────────────────────────────── 'r' ────────────────│ or 'e' step errno
//	  │ writes uid_map, gid_map │                          │
//	  │──────────────────────────────── 'g' ──────────────▶│ setresgid, setresuid 0
//	                            │ read(life)               │ Go runtime, package engine
//	                            │◀──────── 'c' or EOF ─────│
//
// A stays in the host's namespaces with the caller's own rights. It is the child subreaper of everything the runner
// starts. It holds the runner's lock until it has removed what the kernel does not remove by itself.
//
// After 'c', A removes the paths in [EnvClean]. EOF without 'c' means that the runner was killed. A then executes the
// program again with the argument "reap" (see reap.go in cmd/demesne-runner). That process runs in Go and receives B's user namespace
// and a clock that says whether the machine's clock was set. After 't', A executes the program in a child with the
// argument "tidy" and keeps waiting.
//
// [client.Userns] uses the same mechanism for a program other than the runner. The map may have to be tried twice, and
// a namespace can have only one map. So a separate process H makes the namespace, and the program joins it once it is
// mapped:
//
//	caller                    H                  C
//	  │── execve ──────────────▶│ unshare user     │
//	  │◀──────────── 'r' ───────│ or 'e'           │
//	  │ writes uid_map, gid_map │                  │
//	  │── execve, /proc/H/ns/user ────────────────▶│ setns user, unshare mount+network
//	  │──────────── EOF ───────▶│ exit             │ setresgid, setresuid 0
//	  │                                            │ Go runtime, [Become]
//	  │◀──────────── 'd' ──────────────────────────│ will die with the caller, or 'e'
//	  │◀──────────── EOF ──────────────────────────│ execve of the program, or 'e'
//
// The package relies on the kernel for capabilities in a new user namespace (user_namespaces(7)) and for child
// subreapers (prctl(2)). It does not choose id maps, which package client does on the caller's side, and does nothing
// after this setup.
package userns

import "syscall"

// Environment variables that pass between the caller, A and B.
const (
	EnvControl = "_DEMESNE_CONTROL" // descriptor: the stream socket in the diagram above
	EnvMode    = "_DEMESNE_MODE"    // ModeUser, ModeRoot, ModeMinimal or ModeHold
	EnvClean   = "_DEMESNE_CLEAN"   // files and directories that A removes at the end, one per line
	EnvLock    = "_DEMESNE_LOCK"    // descriptor: the lock, held by both A and B
	EnvKey     = "_DEMESNE_KEY"     // the runner's key, for the reaper in Go
	EnvRun     = "_DEMESNE_RUN"     // the run directory, for the reaper in Go
	EnvUserns  = "_DEMESNE_USERNS"  // descriptor: the namespace that C joins, or B's former namespace for the reaper
	EnvClock   = "_DEMESNE_CLOCK"   // descriptor: the reaper's clock, a timerfd that is cancelled when the clock is set
	EnvProgram = "_DEMESNE_PROGRAM" // descriptor: the program that C executes
	EnvSIGSYS  = "_DEMESNE_SIGSYS"  // set by A for the reaper in Go: a seccomp filter killed B
	EnvOwner   = "_DEMESNE_OWNER"   // user id: the owner of the namespace that H makes; only real root may choose one
)

// FDLife is B's end of the pipe on which A waits. Its number follows the descriptors that the caller passes; see
// package api.
const FDLife = 7

// Modes in which B, C or H starts.
const (
	ModeUser    = "user"    // unshare, keep supplementary groups
	ModeRoot    = "root"    // unshare, drop supplementary groups, which are the host's
	ModeMinimal = "minimal" // no namespaces: the machine forbids them
	ModeHold    = "hold"    // H in the second diagram
)

// Step identifies the operation that failed. Its number is the second byte of an 'e' message.
type Step byte

// The steps, with the same numbers as in cmd/demesne-runner/userns.c.
const (
	stepUser Step = iota + 1
	stepMounts
	stepGroupID
	stepUserID
	stepGroups
	stepJoin
	stepNetwork
	// StepPrivate is the first mount of an unpack.
	StepPrivate
	// StepExecute is the last step: after it, the program runs.
	StepExecute
	// StepMap happens in the caller: the kernel refused the id map. Since Linux 5.12, uid 0 can map itself only with
	// CAP_SETFCAP, which containers drop (user_namespaces(7)).
	StepMap
	// StepSlaves is the first mount: AppArmor's profile of Docker and systemd's @system-service refuse it.
	StepSlaves
	// StepAttributes is the test for mount_setattr(2), which Linux has since 5.12.
	StepAttributes
	// StepNested is the user namespace of a sandbox, which Debian's sysctl refuses in the runner's, even if root made that.
	StepNested
	// StepKilled and StepConfine happen in the caller: SIGSYS killed B, in ModeMinimal as it tried what confines a sandbox.
	StepKilled
	StepConfine
)

// ExitSIGSYS is A's exit code when a seccomp filter killed B.
const ExitSIGSYS = 126

func steps() map[Step]string {
	return map[Step]string{
		stepUser:       "unshare user namespace",
		stepMounts:     "unshare mount and cgroup namespaces",
		stepGroupID:    "set group id",
		stepUserID:     "set user id",
		stepGroups:     "drop supplementary groups",
		stepJoin:       "join user namespace",
		stepNetwork:    "unshare mount and network namespaces",
		StepPrivate:    "make mounts private",
		StepExecute:    "execute program",
		StepMap:        "write id map",
		StepSlaves:     "make mounts slaves",
		StepAttributes: "set attributes of mounts",
		StepNested:     "make nested user namespace",
		StepKilled:     "make namespaces and mounts: killed by SIGSYS",
		StepConfine:    "use Landlock and seccomp: killed by SIGSYS",
	}
}

// Refused is the error for a machine that does not allow the outer user namespace.
type Refused struct {
	Step  Step
	Errno syscall.Errno
}

func (r *Refused) Error() string { return steps()[r.Step] + ": " + r.Errno.Error() }

// Unwrap returns the errno.
func (r *Refused) Unwrap() error { return r.Errno }
