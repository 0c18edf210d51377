package upper

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/rootfs/layers"
)

// LayerOptions say what is in a layer.
type LayerOptions struct {
	Skip     func(path string) bool     // leaves a path out, with everything below it; nil: none
	Bare     func(dir *tar.Header) bool // leaves a directory out, unless the layer has something below it; nil: none
	NotAfter time.Time                  // no entry is younger; zero: no bound
	Bounded  bool                       // refuse what package unpack would refuse: long names, and huge holes
}

// WriteLayer writes an upper that rootfs.KeptUpper opened as a layer of an OCI image. The layer is a tar in which
// .wh.NAME removes a name, and .wh..wh..opq in a directory hides what is below it (image-spec, layer.md). Owners are ids of
// this user namespace, or as unpacking recorded them. Sockets and devices are left out. Times are in seconds, and holes are no
// data. The entries of a directory are in order of name, so that the file system does not matter. A name that begins with .wh.
// cannot be stored in a layer and is an error. The sandbox must not write meanwhile.
func WriteLayer(dir *os.File, w io.Writer, o LayerOptions) (entries int, err error) {
	p := &packer{LayerOptions: o, w: w, tar: tar.NewWriter(w), files: map[uint64]string{}, copying: make([]byte, 128<<10)}
	p.walk.visit, p.walk.sorted = p.visit, true
	if err := p.walk.run(dir); err != nil {
		return 0, fmt.Errorf("write layer: %w", err)
	}
	if p.failed == nil && o.Bounded && p.holes > maxSize-p.data {
		p.fail(p.widest, fmt.Errorf("a layer with %d MiB of data cannot have %d MiB of holes", p.data>>20, p.holes>>20))
	}
	if p.failed != nil {
		return 0, fmt.Errorf("write layer: %w", p.failed)
	}
	return p.entries, p.tar.Close()
}

// Bounds of what package unpack takes.
const (
	maxSize  = 64 << 30 // bytes of all files, with their holes
	maxPath  = 4095     // bytes of a name
	maxDepth = 512      // components of a name
)

const (
	whiteoutPrefix = ".wh."
	opaqueMark     = ".wh..wh..opq"
)

type packer struct {
	walk
	LayerOptions
	w       io.Writer
	tar     *tar.Writer       // writes to w
	files   map[uint64]string // files with several names, and their first name
	bare    []*tar.Header     // directories that are left out so far
	asked   string            // the last directory that skipped was asked about,
	without bool              // and its answer
	copying []byte
	entries int
	data    int64  // bytes of all files, without holes
	holes   int64  // bytes of all holes
	widest  string // the last file with holes
	failed  error  // if set, the tar is unusable
}

// visit writes one name. The walk calls it for a directory before its contents.
func (p *packer) visit(at int, name string, st *unix.Statx_t) error {
	if name == "" || p.failed != nil {
		return nil
	}
	full := p.path(name)
	if p.skipped(full) {
		return nil
	}
	if strings.HasPrefix(name, whiteoutPrefix) {
		p.fail(full, errors.New(`a layer has no names that begin with ".wh."`))
		return nil
	}
	if p.Bounded && (len(full) > maxPath || strings.Count(full, "/") >= maxDepth) {
		p.fail(full[:64]+"…", fmt.Errorf("a layer has no names of more than %d bytes or %d components", maxPath, maxDepth))
		return nil
	}
	if err := p.entry(at, name, full, st); err != nil {
		p.fail(full, err)
	}
	return nil
}

func (p *packer) fail(full string, err error) {
	p.failed, p.enough = fmt.Errorf("%q: %w", full, err), true
}

// skipped reports whether a path, or a directory above it, is left out. It asks once for the files of a directory.
func (p *packer) skipped(full string) bool {
	if p.Skip == nil || p.Skip(full) {
		return p.Skip != nil
	}
	dir := path.Dir(full)
	if dir != "." && dir != p.asked {
		p.without = p.skipped(dir)
		p.asked = dir
	}
	return dir != "." && p.without
}

func (p *packer) entry(at int, name, full string, st *unix.Statx_t) error {
	h := &tar.Header{
		Name: full, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtime.Sec, 0), // archive/tar would round up, and compilers' caches record truncated times
	}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFLNK && kind != unix.S_IFCHR && kind != unix.S_IFREG {
		if err := p.attributes(h, xattrsAt(at, name)); err != nil {
			return err
		}
	}
	switch {
	case kind == unix.S_IFCHR && st.Rdev_major == 0 && st.Rdev_minor == 0:
		return p.write(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Dir(full), whiteoutPrefix+name)})
	case kind == unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, full+"/"
		if p.Bare != nil && p.Bare(h) && !opaque(at, name) {
			p.bare = append(p.bare, h)
			return nil
		}
		err := p.write(h)
		if err == nil && opaque(at, name) {
			err = p.write(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(full, opaqueMark)})
		}
		return err
	case kind == unix.S_IFLNK:
		target, err := fsutil.ReadlinkAt(at, name)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
		return p.write(h)
	case kind == unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
		return p.write(h)
	case kind != unix.S_IFREG:
		return nil
	case st.Nlink > 1 && p.files[st.Ino] != "":
		if err := p.attributes(h, xattrsAt(at, name)); err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeLink, p.files[st.Ino]
		return p.write(h)
	}
	if st.Nlink > 1 {
		p.files[st.Ino] = full
	}
	return p.file(h, at, name)
}

// write writes a header, after the headers of the directories above that were left out so far.
func (p *packer) write(h *tar.Header) error {
	if err := p.above(h); err != nil {
		return err
	}
	p.entries++
	return p.tar.WriteHeader(h)
}

// above prepares for an entry: it writes the directories above it, and bounds its time.
func (p *packer) above(h *tar.Header) error {
	if !p.NotAfter.IsZero() && h.ModTime.After(p.NotAfter) {
		h.ModTime = p.NotAfter
	}
	for i := 0; i < len(p.bare); {
		dir := p.bare[i]
		if !strings.HasPrefix(h.Name, dir.Name) {
			i++
			continue
		}
		p.bare = slices.Delete(p.bare, i, i+1)
		if err := p.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// file writes a regular file. It uses no os.File for most of them, which would ask epoll about each.
func (p *packer) file(h *tar.Header, at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	if err := p.attributes(h, xattrsOf(fd)); err != nil {
		unix.Close(fd)
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if allocated := st.Blocks * 512; allocated < st.Size {
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		if done, err := p.sparse(h, f, allocated); done || err != nil {
			return err
		}
		if err := p.write(h); err != nil {
			return err
		}
		return p.copy(p.tar, f, st.Size)
	}
	defer unix.Close(fd)
	if err := p.write(h); err != nil {
		return err
	}
	p.data += st.Size
	return p.copy(p.tar, fsutil.RawReader(fd), st.Size)
}

// copy copies n bytes. archive/tar would copy small pieces, with a buffer for each file.
func (p *packer) copy(to io.Writer, from io.Reader, n int64) error {
	did, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{io.LimitReader(from, n)}, p.copying)
	if err == nil && did < n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// attributes adds the attributes that have a meaning in an image.
func (p *packer) attributes(h *tar.Header, of xattrCalls) error {
	found, err := of.read(meansAnything)
	for key, value := range found {
		if strings.Contains(key, "=") {
			continue // a PAX key ends at "="
		}
		if key == layers.OwnerAttr {
			recall(h, value)
			continue
		}
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+key] = value
	}
	return err
}

// recall sets the owner that could not be set when the file was unpacked. Such a file belongs to 0. With another
// owner the record is out of date.
func recall(h *tar.Header, value string) {
	uid, gid, ok := layers.RecordedOwner(value)
	if !ok {
		return
	}
	if h.Uid == 0 && uid != layers.NoID {
		h.Uid = int(uid)
	}
	if h.Gid == 0 && gid != layers.NoID {
		h.Gid = int(gid)
	}
}
