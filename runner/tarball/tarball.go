// Package tarball copies a file or a directory as a tar stream: out of a directory that
// somebody else may be changing, and into one from a stream that somebody else made.
//
//	host                                        sandbox
//	Pack(w, root, "data", …)  ──stdin──▶   demesne-init put PATH: Unpack
//	Unpack(r, root, …)        ◀──stdout──  demesne-init get PATH: Pack
//
// Both sides are this code. Inside, it runs as the sandbox's user, under everything that
// confines a command there; so the host never opens a path of the sandbox's, and what it
// gets is a stream with limits (escapes.md F2, F17, P16). On the host every name is used
// below an os.Root, a file is never created through a link, and links, devices and
// set-user-id bits do not come out.
//
// The package imports nothing of ours: PID 1 of every sandbox has it.
package tarball

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits bounds what [Unpack] takes. The zero value is 64 GiB in a million entries.
type Limits struct {
	Bytes   int64
	Entries int
}

// maxDepth bounds the directories above a file.
const maxDepth = 255

func (l Limits) orDefault() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 30
	}
	if l.Entries <= 0 {
		l.Entries = 1 << 20
	}
	return l
}

// Errors of Unpack, besides those of the file system.
var (
	ErrTooLarge = errors.New("too large")
	ErrBadName  = errors.New("name leads outside")
)

// Pack writes name, a file or a directory with everything below it, as a tar stream in
// which it is called as. Links are written as links, never followed; what is neither
// file, directory nor link is left out.
func Pack(w io.Writer, root *os.Root, name, as string) error {
	tw := tar.NewWriter(w)
	if err := pack(tw, root, name, as, 0); err != nil {
		return err
	}
	return tw.Close()
}

// pack writes base, which is in root itself: what is below is packed below the directory that was opened, wherever
// somebody moves that, and whatever is put in its place.
func pack(tw *tar.Writer, root *os.Root, base, as string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("pack %q: nested too deeply", as)
	}
	info, err := root.Lstat(base)
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	switch {
	case info.IsDir():
		return packDir(tw, root, base, as, info, depth)
	case info.Mode().IsRegular():
		return packFile(tw, root, base, as, info)
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(base)
		if err != nil {
			return fmt.Errorf("pack %q: %w", as, err)
		}
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: as, Linkname: target, Mode: 0o777, ModTime: info.ModTime()})
	}
	return nil
}

// errChanged: what has the name is not what had it. An os.Root opens what a link leads to, O_NOFOLLOW or not, as long as
// that is below it.
var errChanged = errors.New("changed while it was read")

func packDir(tw *tar.Writer, root *os.Root, base, as string, info fs.FileInfo, depth int) error {
	h := &tar.Header{Typeflag: tar.TypeDir, Name: as + "/", Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	if err := tw.WriteHeader(h); err != nil {
		return err
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
		err := pack(tw, dir, e.Name(), path.Join(as, e.Name()), depth+1)
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a directory, which must be the one that info is of.
func list(dir *os.Root, info fs.FileInfo) ([]fs.DirEntry, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		return nil, cmp.Or(err, errChanged)
	}
	return f.ReadDir(-1)
}

// packFile writes the file that info is of, or what has replaced it since. The size is that of the moment it was opened; a file
// that shrinks after that is an error, for the stream is in the middle of it.
func packFile(tw *tar.Writer, root *os.Root, base, as string, info fs.FileInfo) error {
	f, now, err := openFile(root, base, info)
	if err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	defer f.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: as, Size: now.Size(), Mode: int64(now.Mode().Perm()), ModTime: now.ModTime()}
	if err := tw.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	if _, err := io.CopyN(tw, f, now.Size()); err != nil {
		return fmt.Errorf("pack %q: %w", as, err)
	}
	return nil
}

// looks is how often a file is looked at that others replace all the time.
const looks = 100

// openFile opens the regular file that has the name, which info was of a moment ago.
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

// Report is what Unpack did.
type Report struct {
	Files   int
	Bytes   int64
	Skipped []string // names of links and special files that were left out; the first 100
}

// Options say how to unpack.
type Options struct {
	Links  bool   // create symbolic links as they are; otherwise they are skipped
	As     string // takes the place of each name's first component, unless empty
	Limits Limits
}

// Unpack creates what the stream holds below root. What is neither file, directory nor,
// with Links, symbolic link is skipped. A file has a name once it is whole, see place.go; one that exists is
// replaced by rename. A directory that exists is added to.
func Unpack(r io.Reader, root *os.Root, o Options) (Report, error) {
	u := &unpacker{root: root, Options: o, left: o.Limits.orDefault()}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return u.did, nil
		}
		if err != nil {
			return u.did, fmt.Errorf("unpack: %w", err)
		}
		if err := u.entry(h, tr); err != nil {
			return u.did, fmt.Errorf("unpack %q: %w", h.Name, err)
		}
	}
}

type unpacker struct {
	Options
	root *os.Root
	left Limits
	did  Report
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if u.As != "" {
		_, rest, _ := strings.Cut(name, "/")
		name = path.Join(u.As, rest)
	}
	if u.left.Entries--; u.left.Entries < 0 {
		return ErrTooLarge
	}
	mode := fs.FileMode(h.Mode) & 0o777
	switch h.Typeflag {
	case tar.TypeDir:
		return u.root.MkdirAll(name, mode|0o700)
	case tar.TypeReg:
		if u.left.Bytes -= h.Size; u.left.Bytes < 0 {
			return ErrTooLarge
		}
		return u.file(name, mode|0o600, h.Size, r)
	case tar.TypeSymlink:
		if u.Links {
			return u.replace(name, func(temp string) error { return u.root.Symlink(h.Linkname, temp) })
		}
	}
	if len(u.did.Skipped) < 100 {
		u.did.Skipped = append(u.did.Skipped, name)
	}
	return nil
}

// clean is the name of an entry as one below a root.
func clean(name string) (string, error) {
	c := path.Clean(name)
	if name == "" || path.IsAbs(name) || c == ".." || strings.HasPrefix(c, "../") || strings.ContainsRune(name, 0) || strings.Count(c, "/") > maxDepth {
		return "", ErrBadName
	}
	return c, nil
}
