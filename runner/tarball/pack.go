package tarball

import (
	"archive/tar"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Pack writes name, a file or a directory tree, as a tar stream in which it is called as. Links are written as links
// and never followed. For a special file only the name and kind are written; if name itself is one, the error is a
// [*SpecialError]. The stream gets its end mark only on success.
func Pack(w io.Writer, root *os.Root, name, as string, l Limits) (Report, error) {
	var one Sources
	one.Add(root, name, as)
	return one.Pack(w, l)
}

// Sources are files and directory trees for one stream.
type Sources []source

type source struct {
	root     *os.Root
	name, as string
}

// Add adds name of root, which is called as in the stream.
func (all *Sources) Add(root *os.Root, name, as string) { *all = append(*all, source{root, name, as}) }

// Pack writes them as [Pack] does.
func (all Sources) Pack(w io.Writer, l Limits) (Report, error) {
	p := &packer{w: tar.NewWriter(w), left: l.budget()}
	for _, s := range all {
		if err := p.pack(s.root, s.name, s.as, 0); err != nil {
			return p.did, err
		}
	}
	return p.did, p.w.Close()
}

type packer struct {
	w    *tar.Writer
	left budget
	did  Report
}

// pack writes base, a direct child of root. It reads children below the directory that it opened, even if that
// directory is moved or replaced meanwhile.
func (p *packer) pack(root *os.Root, base, as string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("pack %q: nested too deeply", as)
	}
	info, err := root.Lstat(base)
	if err == nil {
		err = p.left.entry()
	}
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	switch {
	case info.IsDir():
		return p.dir(root, base, as, info, depth)
	case info.Mode().IsRegular():
		err = p.file(root, base, as, info)
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = root.Readlink(base); err == nil {
			err = p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: as, Linkname: target, Mode: 0o777, ModTime: info.ModTime()})
		}
	case depth == 0:
		err = &SpecialError{specialKind(info.Mode())}
	default:
		kind := specialKind(info.Mode())
		p.did.leave(as, kind)
		err = p.w.WriteHeader(leftHeader(as, kind, info.ModTime()))
	}
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	return nil
}

// leftHeader returns the header of an entry that is not in the stream.
func leftHeader(name, kind string, t time.Time) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeFifo, Name: name, ModTime: t, Format: tar.FormatPAX, PAXRecords: map[string]string{kindRecord: kind}}
}

// errChanged means that a name now refers to another file. An os.Root follows a link that leads below it, even with
// O_NOFOLLOW.
var errChanged = errors.New("changed during the copy")

func (p *packer) dir(root *os.Root, base, as string, info fs.FileInfo, depth int) error {
	h := &tar.Header{Typeflag: tar.TypeDir, Name: as + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX}
	if err := p.w.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	dir, err := root.OpenRoot(base)
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	defer dir.Close()
	entries, err := list(dir, info)
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	for _, e := range entries {
		err := p.pack(dir, e.Name(), path.Join(as, e.Name()), depth+1)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a directory, in the order of its names. It fails unless the directory is the one that info describes.
func list(dir *os.Root, info fs.FileInfo) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		return nil, cmp.Or(err, errChanged)
	}
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

const (
	small   = 64 << 10 // bytes; a file of at most this size is read before its header is written
	maxBlob = 1 << 20  // bytes; bounds a file that reports size 0, as in /proc
)

// file writes the file that info describes, or its replacement. It is an error if a file shrinks while it is
// streamed. A small file is copied as it was read.
func (p *packer) file(root *os.Root, base, as string, info fs.FileInfo) error {
	f, now, err := openFile(root, base, info)
	if err != nil {
		return err
	}
	defer f.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: as, Mode: int64(now.Mode().Perm()), ModTime: now.ModTime(), Format: tar.FormatPAX}
	if now.Size() <= small {
		text, err := readSmall(f, now.Size())
		if err != nil {
			return err
		}
		return p.write(h, whole(int64(len(text))), text, nil)
	}
	return p.write(h, contentOf(f, now), nil, f)
}

// write writes a file. Its content is text, or is read from f if that is not nil.
func (p *packer) write(h *tar.Header, c content, text []byte, f *os.File) error {
	if err := p.left.file(c.data, c.size); err != nil {
		return err
	}
	c.describe(h)
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	p.did.Files++
	p.did.Bytes += c.data
	meter := p.left.limits.Meter
	defer meter.file()
	if f == nil {
		_, err := io.Copy(p.w, meter.reader(bytes.NewReader(text)))
		return err
	}
	if err := c.writeExtents(p.w); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{p.w}, meter.reader(c.in(f)), buffer(c.data))
	return err
}

// readSmall reads a file to its end. Files that the kernel generates on reading report a size of 0 or of a page,
// whatever their content.
func readSmall(f *os.File, size int64) ([]byte, error) {
	most := size
	if size == 0 {
		most = maxBlob + 1
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var text []byte
	buf := make([]byte, min(most, small))
	for int64(len(text)) < most {
		n, rerr := 0, error(nil)
		// f.Read would wait if no data is available now (EAGAIN).
		err := rc.Read(func(fd uintptr) bool {
			n, rerr = unix.Read(int(fd), buf[:min(int64(len(buf)), most-int64(len(text)))])
			return true
		})
		if err = cmp.Or(rerr, err); errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return text, nil
		}
		text = append(text, buf[:n]...)
	}
	if len(text) > maxBlob {
		return nil, fmt.Errorf("has no known size and more than %d bytes: %w", maxBlob, errChanged)
	}
	return text, nil
}

// looks bounds the attempts to open a file that is being replaced continuously.
const looks = 100

// openFile opens the regular file with that name, which info described a moment ago. It retries if the file was
// replaced.
func openFile(root *os.Root, base string, info fs.FileInfo) (*os.File, fs.FileInfo, error) {
	for range looks {
		f, err := root.OpenFile(base, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, nil, err
		}
		now, err := f.Stat()
		if err == nil && now.Mode().IsRegular() && os.SameFile(now, info) {
			return f, now, nil
		}
		f.Close()
		if info, err = root.Lstat(base); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errChanged
}
