package api

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/userns"
)

// Boot is the configuration that a caller sends to a runner it starts. It is one line of JSON after the 'g' in the
// diagram of package userns. It holds facts that the runner cannot find out by itself.
type Boot struct {
	RunDir      string           `json:"run_dir"`
	Key         string           `json:"key"`
	Init        string           `json:"init"` // path of demesne-init
	Mode        string           `json:"mode"` // one of the userns.Mode constants
	UIDMap      []runner.IDRange `json:"uid_map"`
	GIDMap      []runner.IDRange `json:"gid_map"`
	MapWhy      string           `json:"map_why,omitempty"`   // why only a single id is mapped
	MapFix      string           `json:"map_fix,omitempty"`   // how to get more
	ModeWhy     string           `json:"mode_why,omitempty"`  // why there are no namespaces
	Alone       bool             `json:"alone,omitempty"`     // no socket for callers: the runner serves the one that started it
	NoMounts    bool             `json:"no_mounts,omitempty"` // a mount, even an attempt, would kill the runner
	ModeFix     string           `json:"mode_fix,omitempty"`
	CgroupAt    []string         `json:"cgroups,omitempty"`      // made for this runner by real root
	Callers     NSID             `json:"callers"`                // the callers' user namespace
	SandboxRoot string           `json:"sandbox_root,omitempty"` // the [client.SandboxRoot]; it need not exist
	PoolSize    int              `json:"pool_size,omitempty"`    // maximum number of prepared sandboxes
	Network     bool             `json:"network,omitempty"`      // the first sandbox will probably have a network
}

// UIDs returns the number of mapped user ids.
func (b Boot) UIDs() uint32 { return size(b.UIDMap) }

// GIDs returns the number of mapped group ids.
func (b Boot) GIDs() uint32 { return size(b.GIDMap) }

// OneID reports whether only a single user id or group id is mapped.
func (b Boot) OneID() bool { return b.UIDs() == 1 || b.GIDs() == 1 }

// RealRoot reports whether real root's runner has this configuration.
func (b Boot) RealRoot() bool { return b.Mode == userns.ModeRoot }

// Minimal reports whether the runner has no namespaces.
func (b Boot) Minimal() bool { return b.Mode == userns.ModeMinimal }

func size(m []runner.IDRange) (n uint32) {
	for _, r := range m {
		n += r.Size
	}
	return n
}

// RecordsGrants reports whether a runner in this mode may write the record of a sandbox's grants (package grants). The
// runner then has the caller's user id, and sees the same file owners as the reaper, which joins its user namespace.
func RecordsGrants(mode string) bool { return mode == userns.ModeUser }

// NSID identifies a namespace; see namespaces(7).
type NSID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// FileUserNS names the descriptor of a caller's user namespace, with which it identifies itself. A sandboxed process
// cannot produce one of the host's namespaces. So it could not use the socket even if it could reach it (P9).
const FileUserNS = "userns"

// FileOutMap names the descriptor of a user namespace that real root's clients use for the id map of an /out. The client
// that makes it sends it with a call, and the runner sends it with its greeting to each later client.
const FileOutMap = "out-map"

// Identify returns the identity of the namespace that f refers to.
func Identify(f *os.File) (NSID, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
		return NSID{}, fmt.Errorf("identify namespace: %w", err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return NSID{}, errors.New("identify namespace: not a namespace")
	}
	return NSID{uint64(st.Dev), st.Ino}, nil
}

// Descriptors that a runner inherits when it starts.
const (
	FDControl  = 3 // see package userns; the Boot follows on it
	FDConn     = 4 // the caller that started the runner, already connected
	FDListener = 5 // KEY.sock
	FDLock     = 6 // KEY.lock, locked
)

// Backlog bounds the callers that wait to be accepted on the listener.
const Backlog = 4096
