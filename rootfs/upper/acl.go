package upper

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/openat"
)

const (
	aclAccess  = "system.posix_acl_access"
	aclDefault = "system.posix_acl_default"
)

// attributes names the extended attributes of a file that have to go: what gives rights (capabilities, access lists),
// and properties of btrfs, which are flags of the inode.
func (s *settling) attributes(at int, name string, recent bool) (found []string, err error) {
	file := openat.Path(at) + "/" + pathOrSelf(name)
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

// mayKeep says whether an access list is the caller's own: the directory's as it was when it was given or, below it, one
// whose users and groups the directory's default list has, as what is made there inherits it.
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

// readList reads an access list; none is nil.
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

// Lists reads the access lists of a directory, which may be an O_PATH descriptor: nil where it has none.
func Lists(fd int) (access, def []byte, err error) {
	at := openat.Path(fd)
	if access, err = readList(at, aclAccess, unix.Getxattr); err == nil {
		def, err = readList(at, aclDefault, unix.Getxattr)
	}
	return access, def, err
}

// entry is one of an access list, as include/uapi/linux/posix_acl_xattr.h of the kernel lays it out.
type entry struct {
	tag, perm uint16
	id        uint32
}

// The tags of acl(5) that matter here.
const (
	tagUser     = 0x02
	tagGroupObj = 0x04
	tagGroup    = 0x08
	tagMask     = 0x10
)

// entries parses a list; what is cut short ends it.
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

// within says whether one of the entries gives the same user or group as much.
func within(e entry, given []entry) bool {
	for _, g := range given {
		if g.tag == e.tag && g.id == e.id && e.perm&^g.perm == 0 {
			return true
		}
	}
	return false
}

// groupOf is what a file's access list lets its own group do: without the list, the mode's group bits are that, and
// not the mask any more.
func groupOf(fd int) uint16 {
	group, mask := uint16(0), uint16(7)
	list, err := readList(openat.Path(fd), aclAccess, unix.Getxattr)
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
