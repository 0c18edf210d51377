package upper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

// attributes returns the names of a file's extended attributes that must be removed: those that grant rights
// (capabilities, access lists), and btrfs properties, which are inode flags.
func (s *settling) attributes(at int, name string, recent bool) (found []string, err error) {
	file := fsutil.FDPath(at) + "/" + pathOrSelf(name)
	var buf [1 << 10]byte
	list := buf[:]
	n, err := unix.Llistxattr(file, list)
	if err == unix.ERANGE {
		list = make([]byte, 64<<10) // XATTR_LIST_MAX
		n, err = unix.Llistxattr(file, list)
	}
	switch {
	case err == unix.EOPNOTSUPP || err == unix.ENOENT:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	for _, key := range bytes.Split(list[:n], []byte{0}) {
		key := string(key)
		switch {
		case key == "security.capability":
		case !recent:
			continue
		case strings.HasPrefix(key, "btrfs."):
		case key != aclAccess && key != aclDefault || s.mayKeep(file, name == "", key):
			continue
		}
		found = append(found, key)
	}
	return found, nil
}

// mayKeep reports whether an access list is the caller's own. The lists of the directory itself, and default lists
// below it, must equal the lists at the time when the caller gave the directory. Other lists below it are inherited, so they
// may name only users and groups of its default list, with no more rights.
func (s *settling) mayKeep(file string, top bool, key string) bool {
	given := s.Default
	if key == aclAccess && top {
		given = s.Access
	}
	if len(given) == 0 {
		return false
	}
	list, err := readList(file, key, unix.Lgetxattr)
	if err != nil {
		return false
	}
	if key == aclDefault || top {
		return bytes.Equal(list, given)
	}
	for _, e := range entries(list) {
		if named(e) && !within(e, entries(given)) {
			return false
		}
	}
	return true
}

// readList reads an access list; it returns nil if there is no list.
func readList(file, key string, get func(file, key string, buf []byte) (int, error)) ([]byte, error) {
	buf := make([]byte, 4+8*1024)
	n, err := get(file, key, buf)
	if err == unix.ENODATA || err == unix.EOPNOTSUPP {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return buf[:n], nil
}

// Lists reads the access lists of a directory, which may be an O_PATH descriptor. It returns nil for a missing
// list.
func Lists(fd int) (access, def []byte, err error) {
	at := fsutil.FDPath(fd)
	if access, err = readList(at, aclAccess, unix.Getxattr); err == nil {
		def, err = readList(at, aclDefault, unix.Getxattr)
	}
	return access, def, err
}

// entry is one entry of an access list, in the layout of the kernel's include/uapi/linux/posix_acl_xattr.h.
type entry struct {
	tag, perm uint16
	id        uint32
}

// The tags of acl(5) that this package uses.
const (
	tagUser     = 0x02
	tagGroupObj = 0x04
	tagGroup    = 0x08
	tagMask     = 0x10
)

// entries parses a list, and ignores a truncated entry at its end.
func entries(list []byte) (all []entry) {
	if len(list) < 4 {
		return nil
	}
	for b := list[4:]; len(b) >= 8; b = b[8:] {
		le := binary.LittleEndian
		all = append(all, entry{le.Uint16(b), le.Uint16(b[2:]), le.Uint32(b[4:])})
	}
	return all
}

func named(e entry) bool { return e.tag == tagUser || e.tag == tagGroup }

// within reports whether one of the given entries grants the same user or group at least as much.
func within(e entry, given []entry) bool {
	for _, g := range given {
		if g.tag == e.tag && g.id == e.id && e.perm&^g.perm == 0 {
			return true
		}
	}
	return false
}

// groupOf returns the rights that a file's access list grants to its group. Once the list is removed, the mode's
// group bits are these rights, and no longer the mask.
func groupOf(fd int) uint16 {
	group, mask := uint16(0), uint16(7)
	list, err := readList(fsutil.FDPath(fd), aclAccess, unix.Getxattr)
	if err != nil {
		return 0
	}
	for _, e := range entries(list) {
		switch e.tag {
		case tagGroupObj:
			group = e.perm
		case tagMask:
			mask = e.perm
		}
	}
	return group & mask & 7
}
