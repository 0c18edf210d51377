package layers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// An IDMap is one extent of a user namespace's id map, as in /proc/PID/uid_map: Size ids from Inside are the ids
// from Host of the parent namespace.
type IDMap struct{ Inside, Host, Size uint32 }

// Key returns the name of an id map. It is the same for the same extents in any order. For a map of one id it
// begins with "single".
func Key(uid, gid []IDMap) string {
	if len(uid) == 1 && len(gid) == 1 && uid[0].Size == 1 && gid[0].Size == 1 {
		return fmt.Sprintf("single-%d-%d", uid[0].Host, gid[0].Host)
	}
	sum := sha256.Sum256([]byte(canonical(uid) + "|" + canonical(gid)))
	return "map-" + hex.EncodeToString(sum[:8])
}

func canonical(extents []IDMap) string {
	extents = slices.Clone(extents)
	slices.SortFunc(extents, func(a, b IDMap) int { return int(int64(a.Inside) - int64(b.Inside)) })
	var b strings.Builder
	for _, e := range extents {
		fmt.Fprintf(&b, "%d %d %d,", e.Inside, e.Host, e.Size)
	}
	return b.String()
}

// KeyOf returns the key of a process's user namespace. The process and the caller see the same parent namespace, or the
// process's namespace is a child of the caller's.
func KeyOf(pid int) (string, error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	uid, err := readMap(proc + "uid_map")
	if err != nil {
		return "", err
	}
	gid, err := readMap(proc + "gid_map")
	return Key(uid, gid), err
}

// OwnKey returns the key of the process's user namespace.
func OwnKey() (string, error) {
	uid, gid, err := OwnMap()
	if err != nil {
		return "", err
	}
	return Key(uid, gid), nil
}

// OwnMap returns the id map of the process's user namespace. The map is read once, so a process that will lose
// access to /proc calls it before.
func OwnMap() (uid, gid []IDMap, err error) {
	own, err := ownMap()
	return own.uid, own.gid, err
}

// EnvOneID makes the process unpack layers for sandboxes that have one id and no user namespace. Every file then belongs to
// the process's user, who must be uid 0.
const EnvOneID = "_DEMESNE_ONE_ID"

// OneID reports whether [EnvOneID] is set.
func OneID() bool { return os.Getenv(EnvOneID) != "" }

// OneIDMap is the id map of such a sandbox.
func OneIDMap() (uid, gid []IDMap) {
	return []IDMap{{Host: uint32(os.Geteuid()), Size: 1}}, []IDMap{{Host: uint32(os.Getegid()), Size: 1}}
}

var ownMap = sync.OnceValues(func() (own struct{ uid, gid []IDMap }, err error) {
	if OneID() {
		own.uid, own.gid = OneIDMap()
		return own, nil
	}
	if own.uid, err = readMap("/proc/self/uid_map"); err != nil {
		return own, err
	}
	own.gid, err = readMap("/proc/self/gid_map")
	return own, err
})

func readMap(path string) ([]IDMap, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read id map: %w", err)
	}
	var extents []IDMap
	for line := range strings.Lines(string(text)) {
		var e IDMap
		if _, err := fmt.Sscan(line, &e.Inside, &e.Host, &e.Size); err != nil {
			return nil, fmt.Errorf("read id map: line %q: %w", line, err)
		}
		extents = append(extents, e)
	}
	return extents, nil
}
