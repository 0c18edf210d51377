package runner

import (
	"strconv"
	"strings"
)

// ParseUser parses UID or UID:GID in numbers. A UID alone is the GID too.
func ParseUser(s string) (u User, ok bool) {
	uid, gid, both := strings.Cut(s, ":")
	if !both {
		gid = uid
	}
	var uok, gok bool
	u.UID, uok = ParseID(uid)
	u.GID, gok = ParseID(gid)
	return u, uok && gok
}

// ParseID parses an id. It rejects 2^32-1, the -1 that means "unchanged" in setresuid(2) and chown(2).
func ParseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != 1<<32-1
}
