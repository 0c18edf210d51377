// Package userns puts demesne-runner into its outer user namespace before the Go
// runtime starts.
//
// A Go program cannot do this for itself: unshare(CLONE_NEWUSER) is refused to a
// process with more than one thread (user_namespaces(7)), and a child made with
// SysProcAttr.Cloneflags loses its capabilities at execve, which comes before
// newuidmap has written the map. So a C constructor does it, like libcontainer's
// nsenter, whenever [EnvControl] is set:
//
//	caller                    A (reaper)                 B (the runner)
//	  │── execve ──────────────▶│── fork ─────────────────▶│
//	  │◀─────────── 'p' pid ────│                          │ unshare user, then mount+cgroup
//	  │◀────────────────────────────── 'r' ────────────────│ or 'e' step errno
//	  │ writes uid_map, gid_map │                          │
//	  │──────────────────────────────── 'g' ──────────────▶│ setresgid, setresuid 0
//	                            │ read(life)               │ Go runtime, package engine
//	                            │◀──────── 'c' or EOF ─────│
//
// A stays in the host's namespaces with the caller's own rights. It is the child
// subreaper of everything the runner starts, and holds the runner's lock until it
// has removed what the kernel does not remove by itself. After 'c' that is the
// paths in [EnvClean]. After EOF without 'c' the runner was killed: A executes the
// program again with the argument "reap" (see package reap), in Go, with B's user namespace and a clock that says
// whether the machine's was set. After 't' it does so in a child, with the argument "tidy", and waits on.
//
// [client.Enter] uses the same for a program that is no runner. The map may have to be
// tried twice, and a namespace can have one map only, so the namespace is made by a
// process of its own, H, and the program comes to it when it is mapped:
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
// What rests on the kernel: capabilities in a user namespace one made
// (user_namespaces(7)), child subreapers (prctl(2)). What this package does not do:
// id maps (package client, the caller's side) and anything after.
package userns

import "syscall"

// The environment between the caller, A and B.
const (
	EnvControl = "_DEMESNE_CONTROL" // descriptor: the stream socket drawn above
	EnvMode    = "_DEMESNE_MODE"    // ModeUser, ModeRoot or ModeMinimal
	EnvClean   = "_DEMESNE_CLEAN"   // files and directories A removes at the end, a line each
	EnvLock    = "_DEMESNE_LOCK"    // descriptor: the lock, which A and B both hold
	EnvKey     = "_DEMESNE_KEY"     // the runner's, for the reaper in Go
	EnvRun     = "_DEMESNE_RUN"     // the run directory, for the same
	EnvUserns  = "_DEMESNE_USERNS"  // descriptor: the namespace C joins, or that B had, for the reaper
	EnvClock   = "_DEMESNE_CLOCK"   // descriptor of the reaper's clock: a timerfd that is canceled when the clock is set
	EnvProgram = "_DEMESNE_PROGRAM" // descriptor: what C executes
)

// FDLife is B's end of the pipe that A waits on. It follows the descriptors that the
// caller passes, see package protocol.
const FDLife = 7

// How B, C or H starts.
const (
	ModeUser    = "user"    // unshare, keep supplementary groups
	ModeRoot    = "root"    // unshare, drop supplementary groups: they are the host's
	ModeMinimal = "minimal" // no namespace at all: the machine forbids them
	ModeHold    = "hold"    // H of the second drawing
)

// Step is what was refused; its number is the second byte of an 'e' message.
type Step byte

// The steps; constructor/userns.c has the same.
const (
	stepUser Step = iota + 1
	stepMounts
	stepGroupID
	stepUserID
	stepGroups
	stepJoin
	stepNetwork
	stepPrivate
	// StepExecute is the one after which the program runs.
	StepExecute
	// StepMap is the caller's own: the kernel refused the id map. Since Linux 5.12 uid 0 can map
	// itself only with CAP_SETFCAP, which containers take away (user_namespaces(7)).
	StepMap
)

var steps = map[Step]string{
	stepUser:    "unshare user namespace",
	stepMounts:  "unshare mount and cgroup namespaces",
	stepGroupID: "set group id",
	stepUserID:  "set user id",
	stepGroups:  "drop supplementary groups",
	stepJoin:    "join user namespace",
	stepNetwork: "unshare mount and network namespaces",
	stepPrivate: "make mounts private",
	StepExecute: "execute program",
	StepMap:     "write id map",
}

// Refused says that the machine does not allow the outer user namespace.
type Refused struct {
	Step  Step
	Errno syscall.Errno
}

func (r *Refused) Error() string { return steps[r.Step] + ": " + r.Errno.Error() }

// Unwrap is the errno.
func (r *Refused) Unwrap() error { return r.Errno }
