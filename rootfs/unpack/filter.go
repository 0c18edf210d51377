package unpack

import (
	"archive/tar"
	"path"
	"strings"

	"demesne/rootfs/layers"
)

// Limits apply to one layer. A zero field means the default.
type Limits struct {
	Bytes   int64 // of the uncompressed archive, and of the sizes that its sparse files claim
	Entries int   // entries of the archive
}

const (
	defaultBytes   = 64 << 30
	defaultEntries = 1_000_000

	maxPath  = 4095 // bytes of a name; PATH_MAX less the NUL
	maxName  = 255  // bytes of a component
	maxDepth = 512  // components of a name
	maxXattr = 64 << 10
	// spread bounds the directories that entries imply. Components that a name does not share with the name before
	// count, over all entries; the bound is spread times the allowed entries.
	spread = 4
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Entries <= 0 {
		l.Entries = defaultEntries
	}
	return l
}

const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
	metadata = ".wh..wh."
)

// A filter decides what happens to each entry of one layer, before it is unpacked.
type filter struct {
	limits Limits
	owners owners

	entries, parts int
	bytes          int64 // of files, with holes
	disk           int64 // the same in blocks, plus a block for each directory
	previous       string
	notes          Notes
}

// Notes count the changes that were needed to unpack a layer here.
type Notes struct {
	Devices int // device nodes, replaced by an empty file that no user may open
	Owners  int // files of ids that are not mapped: their owner is 0, and the real one recorded
	Xattrs  int // extended attributes that an image may not set, left out
}

// A verdict says what to do with an entry.
type verdict int

const (
	hand  verdict = iota // unpack it
	leave                // leave it out
)

// check checks hdr and adjusts it for unpacking. An error is a [*RefusedError].
func (f *filter) check(hdr *tar.Header) (verdict, error) {
	if f.entries++; f.entries > f.limits.Entries {
		return leave, &RefusedError{Reason: TooMany}
	}
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return leave, nil
	}
	reason := f.checkName(hdr)
	if reason == "" {
		reason = f.checkType(hdr)
	}
	recall(hdr)
	if reason == "" {
		reason = f.checkXattrs(hdr)
	}
	if reason != "" {
		return leave, &RefusedError{Reason: reason, Entry: hdr.Name}
	}
	if base := path.Base(hdr.Name); strings.HasPrefix(base, metadata) && base != opaque {
		return leave, nil // metadata of aufs
	}
	f.own(hdr)
	if hdr.Typeflag == tar.TypeDir {
		f.disk += block
	}
	return hand, nil
}

// checkName checks the name, and the target of a link.
func (f *filter) checkName(hdr *tar.Header) Reason {
	for _, name := range []string{hdr.Name, hdr.Linkname} {
		if len(name) > maxPath {
			return tooLong
		}
		if strings.ContainsRune(name, 0) {
			return badName
		}
	}
	reason := checkParts(hdr.Name)
	if reason == "" && hdr.Typeflag == tar.TypeLink {
		reason = checkParts(hdr.Linkname)
	}
	if reason != "" {
		return reason
	}
	clean := path.Clean("/" + hdr.Name)
	if clean == "/" && hdr.Typeflag != tar.TypeDir {
		return badRoot
	}
	f.parts += unshared(f.previous, clean)
	f.previous = clean
	if f.parts > spread*f.limits.Entries {
		return TooMany
	}
	return ""
}

// checkParts checks each component of a name.
func checkParts(name string) Reason {
	depth, parts := 0, 0
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			depth--
		default:
			depth++
		}
		parts++
		switch {
		case depth < 0:
			return climbs
		case parts > maxDepth:
			return tooDeep
		case len(part) > maxName:
			return tooLong
		}
	}
	return checkWhiteout(name)
}

// checkWhiteout refuses a whiteout that would remove its own directory or the one above, and a whiteout used as a
// directory.
func checkWhiteout(name string) Reason {
	clean := path.Clean("/" + name)
	dir, base := path.Split(clean)
	if strings.Contains(dir, "/"+whiteout) {
		return badWhiteout
	}
	if of, ok := strings.CutPrefix(base, whiteout); ok && (of == "" || of == "." || of == "..") {
		return badWhiteout
	}
	return ""
}

// unshared returns how many components of name, which begins with a slash, are not shared with the name before.
func unshared(before, name string) int {
	n := 0
	for n < len(before) && n < len(name) && before[n] == name[n] {
		n++
	}
	if !ends(before, n) || !ends(name, n) {
		n = strings.LastIndexByte(name[:n], '/')
	}
	return strings.Count(name[n:], "/")
}

// ends reports whether a component of name ends before n.
func ends(name string, n int) bool { return n == len(name) || name[n] == '/' }

// checkType accepts the file types of an image's file system. It turns a device node into an empty file of mode 0;
// only whiteouts produce the nodes that overlayfs uses for them.
func (f *filter) checkType(hdr *tar.Header) Reason {
	hdr.Mode &= 0o7777
	switch hdr.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse:
		hdr.Typeflag = tar.TypeReg
		if hdr.Size > f.limits.Bytes-f.bytes {
			return TooBig
		}
		f.bytes += hdr.Size
		f.disk += (hdr.Size + block - 1) / block * block
	case tar.TypeChar, tar.TypeBlock:
		hdr.Typeflag, hdr.Mode, hdr.Size = tar.TypeReg, 0, 0
		f.notes.Devices++
	case tar.TypeDir, tar.TypeLink, tar.TypeSymlink, tar.TypeFifo:
	default:
		return badType
	}
	hdr.Devmajor, hdr.Devminor = 0, 0
	return ""
}

// checkXattrs keeps user.* except overlayfs' own, and the capabilities of a program. An image may not write
// attributes that the host's security modules, ACLs or overlayfs read.
func (f *filter) checkXattrs(hdr *tar.Header) Reason {
	for name, value := range hdr.Xattrs {
		if !keepXattr(name, hdr.Typeflag) {
			delete(hdr.Xattrs, name)
			f.notes.Xattrs++
			continue
		}
		if len(name) > maxName || len(value) > maxXattr {
			return badXattr
		}
	}
	return ""
}

func keepXattr(name string, typeflag byte) bool {
	if name == "security.capability" {
		return typeflag == tar.TypeReg && !layers.OneID() // no user namespace binds it
	}
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") && name != layers.OwnerAttr
}
