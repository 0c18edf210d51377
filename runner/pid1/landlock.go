package pid1

import (
	"errors"
	"os"

	"demesne/runner/pid1/pid1api"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	readExec = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir)
	// fileRights are those a rule on a file, not a directory, may have.
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

// restrict applies Landlock to every thread: all filesystem rights this kernel knows
// are denied but below the rules' paths. Without rules the filesystem is left alone,
// because rules forbid every later mount (nesting).
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
	// What this process itself is refused is a probe: not for the host's audit log.
	return c.BestEffort().DisableLoggingForOriginatingProcess().Restrict(rules...)
}

// pathRules translates rules, without those whose path is not there.
func pathRules(in []pid1api.PathRule, abi int) ([]landlock.Rule, error) {
	var out []landlock.Rule
	var missing error
	for _, r := range in {
		access, ok := rights[r.Access]
		if !ok {
			return nil, errors.New("access " + string(r.Access) + ": not known")
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
			// ABI 1 forbids moving files between directories, and go-landlock enforces
			// nothing at all when asked to allow it there.
			access &^= ll.AccessFSRefer
		}
		out = append(out, landlock.PathAccess(access, string(r.Path)))
	}
	if len(out) == 0 {
		return nil, missing
	}
	return out, nil
}

// landlockABI is the kernel's, 0 without Landlock.
func landlockABI() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}

// scopes says whether this kernel has Landlock's signal and socket scopes.
func scopes() bool { return landlockABI() >= 6 }

// is says whether err is one of any.
func is(err error, any ...unix.Errno) bool {
	for _, e := range any {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
