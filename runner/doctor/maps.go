package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/procself"
	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// probeMaps reports on the runner's own user namespace.
func probeMaps(_ context.Context, e *Env) []answer {
	return []answer{e.userns(), e.idMaps(), e.appArmor()}
}

func (e *Env) userns() answer {
	if e.Minimal {
		return answer{runner.Missing, "only Landlock and seccomp", e.ModeWhy, e.ModeFix}
	}
	// unshare needs CAP_SYS_ADMIN over the namespace, which AppArmor's restriction removes. So a success proves
	// the rights of the namespace.
	err := procself.OnDisposableThread(func() error {
		return os.NewSyscallError("unshare mount namespace", unix.Unshare(unix.CLONE_NEWNS))
	})
	if err != nil {
		return e.judge(runner.Missing, "", diagnose.Userns, err)
	}
	return held("may mount")
}

// idMaps gives an anonymous file to the last id; the kernel accepts only mapped ids.
func (e *Env) idMaps() answer {
	if e.Minimal {
		return answer{}
	}
	uids, gids := total(e.UIDMap), total(e.GIDMap)
	if err := giveAway(uids-1, gids-1); err != nil {
		return answer{status: runner.Missing, why: err.Error()}
	}
	if uids > 1 && gids > 1 {
		return held(fmt.Sprintf("%d users, %d groups", uids, gids))
	}
	why, fix := diagnose.IDMaps(errors.New("one id is mapped"), *e.Facts)
	if e.MapWhy != "" {
		why = e.MapWhy // newuidmap's own message, if it ran
	}
	if fix == "" {
		fix = e.MapFix
	}
	return answer{runner.Degraded, "one id: all users inside are the caller", why, fix}
}

func giveAway(uid, gid int) error {
	fd, err := unix.MemfdCreate("demesne-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	defer unix.Close(fd)
	if err := unix.Fchown(fd, uid, gid); err != nil {
		return fmt.Errorf("give file to %d:%d: %w", uid, gid, err)
	}
	return nil
}

// total counts the ids of a map; an unknown map counts as one id.
func total(m []runner.IDRange) int {
	n := 0
	for _, r := range m {
		n += int(r.Size)
	}
	return max(n, 1)
}

// appArmor returns a line only where Ubuntu's restriction exists.
func (e *Env) appArmor() answer {
	switch {
	case e.Facts.AppArmor == "":
		return answer{}
	case e.Facts.AppArmor == "0":
		return held("does not restrict user namespaces")
	case !e.Minimal:
		return held("restricts user namespaces, but not demesne's")
	}
	return e.judge(runner.Missing, "", diagnose.Userns, unix.EPERM)
}

// probeLimits reports the result from the runner's start. Asking systemd for a cgroup again would create a
// second one.
func probeLimits(_ context.Context, e *Env) []answer {
	l := e.Limits
	switch {
	case l.Mechanism == "":
		return []answer{{}}
	case l.Why == "":
		return []answer{held(l.Mechanism)}
	}
	return []answer{{runner.Degraded, l.Mechanism, l.Why, l.Fix}}
}

// probeCallers returns a line only where callers share no runner.
func probeCallers(_ context.Context, e *Env) []answer {
	if !e.Alone {
		return []answer{{}}
	}
	why, fix := diagnose.Sockets(unix.EPERM, *e.Facts)
	return []answer{{runner.Degraded, "each command has its own runner, and persistent sandboxes stop at its end", why, fix}}
}
