package api

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// Boot is what a caller that starts a runner tells it, as a line of JSON after the
// 'g' of package userns' drawing. The runner cannot find these out by itself: it
// was not there.
type Boot struct {
	RunDir   string           `json:"run_dir"`
	Key      string           `json:"key"`
	Init     string           `json:"init"` // path of demesne-init
	Mode     string           `json:"mode"` // a userns.Mode…
	UIDMap   []runner.IDRange `json:"uid_map"`
	GIDMap   []runner.IDRange `json:"gid_map"`
	MapWhy   string           `json:"map_why,omitempty"`  // why a single id
	MapFix   string           `json:"map_fix,omitempty"`  //
	ModeWhy  string           `json:"mode_why,omitempty"` // why no namespaces
	ModeFix  string           `json:"mode_fix,omitempty"`
	CgroupAt []string         `json:"cgroups,omitempty"` // made for this runner by real root
	Callers  NSID             `json:"callers"`           // the user namespace that callers are in
	Kept     string           `json:"kept,omitempty"`    // the [client.SandboxRoot]; it need not be there
	Spares   int              `json:"spares,omitempty"`  // how many sandboxes may be made in advance
	Network  bool             `json:"network,omitempty"` // the first sandbox is to have a way out, in all likelihood
}

// UIDs is how many user ids are mapped.
func (b Boot) UIDs() uint32 { return size(b.UIDMap) }

// GIDs is how many group ids are.
func (b Boot) GIDs() uint32 { return size(b.GIDMap) }

// OneID says that nobody but uid 0 exists inside.
func (b Boot) OneID() bool { return b.UIDs() == 1 || b.GIDs() == 1 }

func size(m []runner.IDRange) (n uint32) {
	for _, r := range m {
		n += r.Size
	}
	return n
}

// NSID identifies a namespace, namespaces(7).
type NSID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// FileUserNS is the descriptor a caller introduces itself with: its user namespace. A
// process in a sandbox has none of the host's to show, so the socket is of no use to
// it, even if it could reach it (escapes.md P9).
const FileUserNS = "userns"

// Identify returns whose f, an open namespace, is.
func Identify(f *os.File) (NSID, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(int(f.Fd()), &st), unix.Fstatfs(int(f.Fd()), &fs)); err != nil {
		return NSID{}, fmt.Errorf("identify namespace: %w", err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return NSID{}, errors.New("identify namespace: not one")
	}
	return NSID{uint64(st.Dev), st.Ino}, nil
}

// Descriptors a runner starts with.
const (
	FDControl  = 3 // see package userns; then the Boot is read from it
	FDConn     = 4 // the caller that started it, already connected
	FDListener = 5 // KEY.sock
	FDLock     = 6 // KEY.lock, locked
)

// Backlog is how many callers may wait on the listener until they are accepted.
const Backlog = 4096
