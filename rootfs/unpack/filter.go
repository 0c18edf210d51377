package unpack

import (
	"archive/tar"
	"path"
	"strings"
)

// Limits of one layer. A zero field means the default.
type Limits struct {
	Bytes   int64 // the archive, uncompressed, and what its sparse files claim to be
	Entries int   // entries of the archive
}

const (
	defaultBytes   = 64 << 30
	defaultEntries = 1_000_000

	maxPath  = 4095 // bytes of a name; PATH_MAX less the NUL
	maxName  = 255  // bytes of a component
	maxDepth = 512  // components of a name
	maxXattr = 64 << 10
	// spread bounds the directories that entries imply: components of a name that the entry before
	// does not share, over all entries, by this many for each entry that is allowed.
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

// A filter decides what becomes of each entry of one layer, before anything is done with it.
type filter struct {
	limits Limits
	owners owners

	entries, parts int
	bytes          int64 // of files, with holes
	disk           int64 // the same in blocks, and a block for each directory
	previous       string
	notes          Notes
}

// Notes count what was changed in a layer for it to be unpacked here.
type Notes struct {
	Devices int // device nodes: an empty file that nobody may open is in their place
	Owners  int // files of ids that the map does not have: the owner is 0, and recorded
	Xattrs  int // extended attributes that an image has no say in: left out
}

// A verdict is what is to be done with an entry.
type verdict int

const (
	hand  verdict = iota // hand it on
	leave                // leave it out
)

// check judges hdr and makes it fit to be handed on. An error is a [*RefusedError].
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
	if reason == "" {
		reason = f.checkXattrs(hdr)
	}
	if reason != "" {
		return leave, &RefusedError{Reason: reason, Entry: hdr.Name}
	}
	if base := path.Base(hdr.Name); strings.HasPrefix(base, metadata) && base != opaque {
		return leave, nil // what aufs kept for itself
	}
	f.own(hdr)
	if hdr.Typeflag == tar.TypeDir {
		f.disk += block
	}
	return hand, nil
}

// checkName judges the name, and what a link leads to.
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

// checkParts judges each component of a name.
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

// checkWhiteout refuses a whiteout that would remove its own directory or the one above, and one
// that is used as a directory.
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

// unshared is how many components of name, which begins with a slash, the name before lacks.
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

// ends tells whether a component of name ends before n.
func ends(name string, n int) bool { return n == len(name) || name[n] == '/' }

// checkType lets through what a file system of an image is made of. A device node becomes an
// empty file of mode 0; those that whiteouts are made of are made for whiteouts only.
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

// checkXattrs leaves user.* but overlayfs' own, and the capabilities of a program. What the host's
// security modules, ACLs and overlayfs read, no image may write.
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
		return typeflag == tar.TypeReg
	}
	return strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "user.overlay.") && name != recorded
}
