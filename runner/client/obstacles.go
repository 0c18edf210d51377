package client

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/ipc"
	"demesne/runner/userns"
)

// Obstacles returns the probes that need no runner, on a machine where none could start. The last one is the runner's, and
// has the error.
func Obstacles(err error) []runner.Probe {
	facts := diagnose.Read("")
	all := []runner.Probe{probed("proc", noProc(), facts, func(err error, _ diagnose.Facts) (string, string) { return err.Error(), procFix })}
	fd, sock := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	unix.Close(fd) // harmless after an error
	all = append(all, probed("callers", sock, facts, diagnose.Sockets))
	landlock := noLandlock(err)
	paths := runner.Probe{Name: "paths", Status: runner.Held, Detail: "openat2"}
	if fsutil.HasOpenat2() != nil {
		paths.Detail = "walked by openat"
	}
	all = append(all, paths, probed("landlock", landlock, facts, diagnose.Landlock))
	e := ipc.AsError(err)
	return append(all, runner.Probe{Name: "runner", Status: runner.Missing, Why: e.Text, Fix: e.Hint})
}

// noLandlock returns why Landlock cannot be used, or nil. err is the runner's: if a filter killed it for such a call, this
// process makes none.
func noLandlock(err error) error {
	if refused, ok := errors.AsType[*userns.Refused](err); ok && refused.Step == userns.StepConfine {
		return refused
	}
	if _, errno := landlockABI(); errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	return nil
}

func landlockABI() (int, unix.Errno) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return int(abi), errno
}

// LandlockABI returns the kernel's version of Landlock, or 0.
func LandlockABI() int {
	abi, errno := landlockABI()
	if errno != 0 {
		return 0
	}
	return abi
}

func probed(name string, err error, f diagnose.Facts, explain func(error, diagnose.Facts) (why, fix string)) runner.Probe {
	p := runner.Probe{Name: name, Status: runner.Held}
	if err != nil {
		p.Status = runner.Missing
		p.Why, p.Fix = explain(err, f)
	}
	return p
}

const procFix = "bwrap --proc /proc …   # or, as root: mount -t proc proc /proc"

// noProc returns an error if there is no proc(5), as in a sandbox of bwrap without --proc, or if it shows
// processes by other numbers, as the proc(5) of an outer pid namespace does.
func noProc() error {
	self, err := os.Readlink("/proc/self")
	switch {
	case err != nil:
		return &ipc.Error{Code: ipc.CodeRequirement, Text: "/proc is not mounted here, and sandboxes need it", Hint: procFix}
	case self != strconv.Itoa(os.Getpid()):
		return &ipc.Error{Code: ipc.CodeRequirement, Text: "/proc here is another pid namespace's, and sandboxes need their own", Hint: procFix}
	}
	return nil
}
