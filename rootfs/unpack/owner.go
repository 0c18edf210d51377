package unpack

import (
	"archive/tar"
	"encoding/binary"

	"demesne/rootfs/layers"
)

// recorded is the extended attribute that records an owner that could not be set, as in rootlesscontainers.proto: a
// message of two varints, 1 the uid and 2 the gid.
const recorded = "user.rootlesscontainers"

// noID in place of an id means that the file's own id is right.
const noID = 1<<32 - 1

// owners holds the ids that files can have here.
type owners struct{ uid, gid []layers.IDMap }

// own gives the entry a mapped owner. It records an owner that is not mapped and replaces it by 0. It then clears
// the setuid and setgid bits that would make a program run as 0.
func (f *filter) own(hdr *tar.Header) {
	uid, gid := uint32(noID), uint32(noID)
	if !mapped(f.owners.uid, hdr.Uid) {
		uid, hdr.Uid = uint32(hdr.Uid), 0
		hdr.Mode &^= 0o4000
	}
	if !mapped(f.owners.gid, hdr.Gid) {
		gid, hdr.Gid = uint32(hdr.Gid), 0
		if hdr.Typeflag != tar.TypeDir {
			hdr.Mode &^= 0o2000
		}
	}
	if uid == noID && gid == noID {
		return
	}
	f.notes.Owners++
	if hdr.Xattrs == nil {
		hdr.Xattrs = map[string]string{}
	}
	hdr.Xattrs[recorded] = string(record(uid, gid))
}

func mapped(extents []layers.IDMap, id int) bool {
	for _, e := range extents {
		if id >= int(e.Inside) && id-int(e.Inside) < int(e.Size) {
			return true
		}
	}
	return false
}

func record(uid, gid uint32) []byte {
	b := binary.AppendUvarint([]byte{1 << 3}, uint64(uid))
	return binary.AppendUvarint(append(b, 2<<3), uint64(gid))
}
