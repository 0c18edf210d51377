package rootfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// GrantWrite lets another user write to a directory of uid 0, by an access list that names only that user. The
// directory keeps its owner, and its mode still decides for all other users. Call takeBack before upper.Settle
// runs; until then the group bits that stat(2) shows are the list's mask. GrantWrite fails if the directory already
// has an access list, if this process may not set one, or if the file system supports none. Then the directory
// stays closed.
func GrantWrite(d *os.File, u User) (takeBack func() error, err error) {
	fd := int(d.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("grant access to %q: %w", d.Name(), err)
	}
	if _, err := unix.Fgetxattr(fd, accessList, nil); !errors.Is(err, unix.ENODATA) {
		return nil, fmt.Errorf("grant access to %q: %w", d.Name(), errors.Join(errors.New("it has an access list, or cannot have one"), err))
	}
	if err := unix.Fsetxattr(fd, accessList, grant(st.Mode, u.UID), unix.XATTR_CREATE); err != nil {
		return nil, fmt.Errorf("grant access to %q: %w", d.Name(), err)
	}
	return func() error {
		defer runtime.KeepAlive(d)
		// While the list exists, these bits are its mask, and would stay in the mode.
		if err := unix.Fchmod(fd, st.Mode&0o7777); err != nil {
			return fmt.Errorf("restore access to %q: %w", d.Name(), err)
		}
		if err := unix.Fremovexattr(fd, accessList); err != nil {
			return fmt.Errorf("restore access to %q: %w", d.Name(), err)
		}
		return nil
	}, nil
}

const accessList = "system.posix_acl_access"

// grant returns the access list for a mode and one more user (acl(5)), in the layout of the kernel's
// include/uapi/linux/posix_acl_xattr.h.
func grant(mode, uid uint32) []byte {
	const (
		userObj, user, groupObj, mask, other = 0x01, 0x02, 0x04, 0x10, 0x20
		nobody                               = ^uint32(0)
	)
	b := binary.LittleEndian.AppendUint32(nil, 2) // version
	for _, e := range []struct {
		tag  uint16
		perm uint32
		id   uint32
	}{
		{userObj, mode >> 6 & 7, nobody}, {user, 7, uid}, {groupObj, mode >> 3 & 7, nobody}, {mask, 7, nobody}, {other, mode & 7, nobody},
	} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, uint16(e.perm))
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}
