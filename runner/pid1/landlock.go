package pid1

import (
	"errors"
	"os"
	"slices"

	"demesne/runner/pid1/pid1api"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	readExec = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir)
	// fileRights are the rights allowed in a rule for a file instead of a directory.
	fileRights = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSReadFile |
		ll.AccessFSTruncate | ll.AccessFSIoctlDev | ll.AccessFSResolveUnix)
)

var (
	device = landlock.V11.HandledAccessFS &^ (ll.AccessFSMakeChar | ll.AccessFSMakeBlock)
	rights = map[pid1api.Access]landlock.AccessFSSet{
		pid1api.AccessReadExec:  readExec,
		pid1api.AccessReadWrite: device &^ ll.AccessFSIoctlDev,
		pid1api.AccessDevice:    device,
	}
)

// restrict applies Landlock to every thread. It denies all file system rights known to this kernel except below
// the rules' paths. Without rules it leaves the file system alone, because rules would forbid later mounts
// (nesting).
func restrict(s pid1api.Setup) error {
	var c landlock.Config
	if len(s.Landlock) > 0 {
		c.HandledAccessFS = landlock.V11.HandledAccessFS
	}
	if s.Scoped {
		c.Scoped = landlock.V11.Scoped
	}
	if s.NoTCP {
		c.HandledAccessNet = ll.AccessNetBindTCP | ll.AccessNetConnectTCP
	}
	rules, err := pathRules(s.Landlock, landlockABI())
	if err != nil {
		return err
	}
	// Denials of this process come from probes and do not belong in the host's audit log.
	return c.BestEffort().DisableLoggingForOriginatingProcess().Restrict(rules...)
}

// pathRules translates rules and skips those whose path does not exist.
func pathRules(in []pid1api.PathRule, abi int) (out []landlock.Rule, missing error) {
	for _, r := range in {
		access, ok := rights[r.Access]
		if !ok {
			return nil, errors.New("access " + string(r.Access) + ": unknown")
		}
		info, err := os.Stat(string(r.Path))
		if err != nil {
			missing = err
			continue
		}
		if !info.IsDir() {
			access &= fileRights
		}
		if abi == 1 {
			// ABI 1 forbids moving files between directories. If asked to allow it, go-landlock enforces
			// nothing at all.
			access &^= ll.AccessFSRefer
		}
		out = append(out, landlock.PathAccess(access, string(r.Path)))
	}
	if len(out) == 0 {
		return nil, missing
	}
	return out, nil
}

// landlockABI returns the kernel's Landlock ABI, or 0 without Landlock.
func landlockABI() int {
	v, _ := ll.LandlockGetABIVersion()
	return max(v, 0)
}

// scopes reports whether this kernel has Landlock's signal and socket scopes.
func scopes() bool { return landlockABI() >= 6 }

// is reports whether err is one of any.
func is(err error, any ...unix.Errno) bool {
	return slices.ContainsFunc(any, func(e unix.Errno) bool { return errors.Is(err, e) })
}
