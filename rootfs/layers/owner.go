package layers

import "encoding/binary"

// OwnerAttr is the extended attribute that records an owner that could not be set, as in rootlesscontainers.proto: a
// message of two varints, 1 the uid and 2 the gid.
const OwnerAttr = "user.rootlesscontainers"

// NoID in place of an id means that the file's own id is right.
const NoID = 1<<32 - 1

// RecordOwner returns the value of [OwnerAttr].
func RecordOwner(uid, gid uint32) string {
	b := binary.AppendUvarint([]byte{1 << 3}, uint64(uid))
	return string(binary.AppendUvarint(append(b, 2<<3), uint64(gid)))
}

// RecordedOwner parses a value of [OwnerAttr], which may be from an image or a sandbox. An id that it does not have
// is 0, as protobuf leaves out zeros.
func RecordedOwner(value string) (uid, gid uint32, ok bool) {
	b := []byte(value)
	for len(b) > 0 {
		id, n := binary.Uvarint(b[1:])
		if n <= 0 || id > NoID {
			return 0, 0, false
		}
		switch b[0] {
		case 1 << 3:
			uid = uint32(id)
		case 2 << 3:
			gid = uint32(id)
		default:
			return 0, 0, false
		}
		b = b[1+n:]
	}
	return uid, gid, value != ""
}
