package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/doctor/diagnose"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

func idLayer(b api.Boot) runner.Layer {
	n := b.UIDs()
	l := runner.Layer{Name: "id-map", Status: runner.Held, Detail: fmt.Sprintf("%d ids", n)}
	if n == 1 {
		l.Status, l.Why, l.Fix = runner.Degraded, b.MapWhy, b.MapFix
		l.Detail = "one id: uid 0 inside is the caller; no other users exist"
	}
	return l
}

func procLayer(f pid1api.Facts, st Start, spec runner.Spec) runner.Layer {
	l := runner.Layer{Name: "proc", Status: runner.Held, Detail: "own, masked"}
	switch {
	case st.ProcBound:
		l.Status = runner.Degraded
		l.Detail = "the outer /proc, bound: its process list is visible"
		l.Why = errText(st.Why)
		l.Fix = "podman run --security-opt unmask=ALL …   # or docker: --security-opt systempaths=unconfined"
	case spec.Nesting:
		l.Status, l.Detail = runner.Off, "own, unmasked (--nesting)"
	case !f.ProcMasked:
		l.Status, l.Detail = runner.Degraded, "own, not masked"
	}
	return l
}

func sysLayer(f pid1api.Facts, err error) runner.Layer {
	switch {
	case err != nil:
		return runner.Layer{Name: "sys", Status: runner.Held, Detail: "empty: mounting a private sysfs failed: " + err.Error()}
	case f.SysReadOnly:
		return runner.Layer{Name: "sys", Status: runner.Held, Detail: "own, read-only"}
	}
	return runner.Layer{Name: "sys", Status: runner.Missing, Detail: "writable"}
}

func hostnameLayer(st Start) runner.Layer {
	if st.NoHostname {
		return runner.Layer{Name: "hostname", Status: runner.Degraded, Detail: "the host's", Why: errText(st.Why)}
	}
	return runner.Layer{Name: "hostname", Status: runner.Held, Detail: "own"}
}

func landlockLayer(f pid1api.Facts, spec runner.Spec) runner.Layer {
	l := runner.Layer{Name: "landlock", Status: runner.Held, Detail: fmt.Sprintf("ABI %d", f.LandlockABI)}
	switch {
	case f.LandlockABI == 0:
		l.Status, l.Detail = runner.Missing, "the kernel has none"
		l.Why = "landlock_create_ruleset(2) is not supported: Linux before 5.13, or not among the security modules enabled at boot"
		l.Fix = "demesne check   # prints the line for this machine"
	case spec.Nesting && f.LandlockScope:
		l.Status, l.Detail = runner.Off, fmt.Sprintf("ABI %d, scopes only (--nesting)", f.LandlockABI)
	case spec.Nesting:
		l.Status, l.Detail = runner.Off, "none (--nesting)"
	case !f.LandlockFS:
		l.Status, l.Detail, l.Why = runner.Missing, "no filesystem rules", strings.Join(f.Problems, "; ")
	case !f.LandlockScope:
		l.Status, l.Detail = runner.Degraded, fmt.Sprintf("ABI %d: filesystem, no scopes", f.LandlockABI)
		l.Why = "the kernel has no scopes: they came with ABI 6, Linux 6.12"
	default:
		l.Detail += ": filesystem, abstract unix sockets, signals"
	}
	return l
}

// Unconfined returns the error for a sandbox without namespaces that Landlock does not confine either, or nil.
func Unconfined(f pid1api.Facts) error {
	if f.LandlockABI > 0 && f.LandlockFS {
		return nil
	}
	refused := errors.New(strings.Join(f.Problems, "; "))
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		refused = os.NewSyscallError("landlock_create_ruleset", errno)
	}
	why, fix := diagnose.Landlock(refused, diagnose.Read(""))
	return &ipc.Error{Code: ipc.CodeRequirement, Text: "restrict sandbox: neither namespaces nor Landlock: nothing would confine it: " + why, Hint: fix}
}

func seccompLayer(f pid1api.Facts, spec runner.Spec) runner.Layer {
	if f.Seccomp == "" {
		return runner.Layer{Name: "seccomp", Status: runner.Missing, Why: strings.Join(f.Problems, "; ")}
	}
	l := runner.Layer{Name: "seccomp", Status: runner.Held, Detail: fmt.Sprintf("%d instructions", f.SeccompLen)}
	if spec.Nesting {
		l.Detail += ", namespaces, mounts and setuid bits allowed (--nesting)"
	}
	return l
}

func privilegeLayer(f pid1api.Facts, left Privileges) runner.Layer {
	l := runner.Layer{Name: "privileges", Status: runner.Held, Detail: "no_new_privs, no capability"}
	if len(left.Words) > 0 {
		l.Detail = "no_new_privs, " + strings.Join(left.Words, ", ")
	}
	if !f.NoNewPrivs || f.CapEffective&^left.Set != 0 {
		l.Status = runner.Missing
		l.Detail = fmt.Sprintf("no_new_privs %t, capabilities %#x", f.NoNewPrivs, f.CapEffective)
	}
	return l
}

// coresLayer reports whether core dumps are confined, from core_pattern and RLIMIT_CORE (fs/coredump.c). The
// kernel writes no core file if the limit is 0 or 1, which is less than a page. It starts a program for any
// limit except 1. Since Linux 6.16 it also connects to a socket, for any limit.
func coresLayer(pattern string, limit uint64) runner.Layer {
	l := runner.Layer{Name: "core-dumps", Status: runner.Held, Detail: "none, by a hard limit"}
	switch {
	case pattern == "":
		l.Status, l.Detail = runner.Degraded, fmt.Sprintf("a limit of %d", limit)
		l.Why = "/proc/sys/kernel/core_pattern could not be read: it may name a socket"
	case strings.HasPrefix(pattern, "@"):
		l.Status, l.Detail = runner.Missing, "the memory of a crashed process goes to a socket on the host"
		l.Why = fmt.Sprintf("core_pattern is %q, and no limit applies to sockets", pattern)
		l.Fix = "sudo sysctl kernel.core_pattern=core  # or a program, with | before its path"
	case strings.HasPrefix(pattern, "|") && limit != 1:
		l.Status, l.Detail = runner.Missing, "a crashed process starts a program on the host"
		l.Why = fmt.Sprintf("core_pattern is %q, and RLIMIT_CORE is %d instead of 1", pattern, limit)
		l.Fix = "sudo prlimit --pid $$ --core=unlimited   # then start demesne from this shell"
	case limit > 1:
		l.Status, l.Detail = runner.Missing, fmt.Sprintf("written, with a limit of %d", limit)
	}
	return l
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
