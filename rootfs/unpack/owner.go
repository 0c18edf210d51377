package unpack

import (
	"archive/tar"

	"demesne/rootfs/layers"
)

// owners holds the ids that files can have here.
type owners struct{ uid, gid []layers.IDMap }

// own gives the entry a mapped owner. It records an owner that is not mapped and replaces it by 0. It then clears
// the setuid and setgid bits that would make a program run as 0.
func (f *filter) own(hdr *tar.Header) {
	uid, gid := uint32(layers.NoID), uint32(layers.NoID)
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
	if uid == layers.NoID && gid == layers.NoID {
		return
	}
	f.notes.Owners++
	if hdr.Xattrs == nil {
		hdr.Xattrs = map[string]string{}
	}
	hdr.Xattrs[layers.OwnerAttr] = layers.RecordOwner(uid, gid)
}

func mapped(extents []layers.IDMap, id int) bool {
	for _, e := range extents {
		if id >= int(e.Inside) && id-int(e.Inside) < int(e.Size) {
			return true
		}
	}
	return false
}

// recall gives the entry the owner that its archive records, and removes the record. A record that does not parse
// stays, and is left out like other attributes that an image may not set.
func recall(hdr *tar.Header) {
	value, ok := hdr.Xattrs[layers.OwnerAttr]
	if !ok {
		return
	}
	uid, gid, ok := layers.RecordedOwner(value)
	if !ok {
		return
	}
	if uid != layers.NoID {
		hdr.Uid = int(uid)
	}
	if gid != layers.NoID {
		hdr.Gid = int(gid)
	}
	delete(hdr.Xattrs, layers.OwnerAttr)
}
