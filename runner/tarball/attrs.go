package tarball

import (
	"archive/tar"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/rootfs/layers"
)

// oneID reports whether this process's user namespace has a single user or group id. There chown(2) succeeds without an
// effect, so the owner of a file or directory of an image is recorded in an attribute, as package unpack does.
func oneID() bool {
	uid, gid, err := layers.OwnMap()
	return err == nil && (total(uid) == 1 || total(gid) == 1)
}

func total(extents []layers.IDMap) (n uint64) {
	for _, e := range extents {
		n += uint64(e.Size)
	}
	return n
}

// recordOwner records the owner of a new file or directory. Links and FIFOs cannot have the attribute, and stay root's.
func recordOwner(name string, h *tar.Header) error {
	err := unix.Lsetxattr(name, layers.OwnerAttr, []byte(layers.RecordOwner(uint32(h.Uid), uint32(h.Gid))), 0)
	if err == nil || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return fmt.Errorf("record owner of %q: %w", name, err)
}

// recallOwner sets the owner that is recorded for a file of root.
func recallOwner(name string, h *tar.Header) {
	var value [32]byte
	n, err := unix.Lgetxattr(name, layers.OwnerAttr, value[:])
	if err != nil {
		return
	}
	uid, gid, ok := layers.RecordedOwner(string(value[:n]))
	if ok && uid != layers.NoID {
		h.Uid = int(uid)
	}
	if ok && gid != layers.NoID {
		h.Gid = int(gid)
	}
}

// attrRecord begins the name of the PAX record of an extended attribute.
const attrRecord = "SCHILY.xattr."

// maxAttrs bounds the names of the attributes of a file, and each value, in bytes.
const maxAttrs = 64 << 10

// AttrOf returns the extended attribute that a PAX record stands for. ok is false for other records, and for attributes
// that Lay does not set: the kernel's, overlayfs's, and recorded owners.
func AttrOf(record string) (name string, ok bool) {
	name, ok = strings.CutPrefix(record, attrRecord)
	return name, ok && strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") && name != layers.OwnerAttr
}

// setAttrs sets the extended attributes of a new file or directory. A file system may have none.
func setAttrs(name string, h *tar.Header) error {
	for record, value := range h.PAXRecords {
		attr, ok := AttrOf(record)
		if !ok {
			continue
		}
		err := unix.Lsetxattr(name, attr, []byte(value), 0)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("set attribute %q of %q: %w", attr, name, err)
		}
	}
	return nil
}

// addAttrs adds the records of a file's extended attributes.
func addAttrs(name string, h *tar.Header) {
	n, err := unix.Llistxattr(name, nil)
	if err != nil || n == 0 || n > maxAttrs {
		return
	}
	list := make([]byte, n)
	if n, err = unix.Llistxattr(name, list); err != nil {
		return
	}
	value := make([]byte, maxAttrs)
	for attr := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		record := attrRecord + attr
		if _, ok := AttrOf(record); !ok || strings.Contains(attr, "=") {
			continue
		}
		if n, err := unix.Lgetxattr(name, attr, value); err == nil {
			h.PAXRecords[record] = string(value[:n])
		}
	}
}
