package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner/tarball"
)

// buildContext is the directory that COPY reads. No link leads out of it.
type buildContext struct {
	root   *os.Root
	ignore *patternmatcher.PatternMatcher
}

// ignoreFiles are the names of the file with the patterns of ignored files. The first that exists counts.
var ignoreFiles = []string{".containerignore", ".dockerignore"}

// maxIgnore bounds that file in bytes.
const maxIgnore = 1 << 20

// openContext opens a directory. file is the Containerfile's name: FILE.dockerignore counts first.
func openContext(dir, file string) (*buildContext, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open context %q: %w", dir, fsutil.Reason(err))
	}
	c := &buildContext{root: root}
	for _, name := range append([]string{file + ".containerignore", file + ".dockerignore"}, ignoreFiles...) {
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", name, fsutil.Reason(err))
		}
		patterns, err := ignorefile.ReadAll(io.LimitReader(f, maxIgnore))
		f.Close()
		if err == nil {
			c.ignore, err = patternmatcher.New(patterns)
		}
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", name, err)
		}
		break
	}
	return c, nil
}

// find returns the names that a source's pattern matches, relative to the context.
func (c *buildContext) find(pattern string) ([]string, error) {
	clean := path.Clean(strings.TrimPrefix(pattern, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, fmt.Errorf("source %q: outside of the context", pattern)
	}
	if clean == "." {
		return []string{"."}, nil
	}
	found, err := fs.Glob(c.root.FS(), clean)
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", pattern, err)
	}
	var names []string
	for _, name := range found {
		skip, err := c.ignored(name)
		if err != nil {
			return nil, err
		}
		if !skip || c.negates() {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0 && len(found) > 0:
		return nil, fmt.Errorf("source %q: excluded by the ignore file", pattern)
	case len(names) == 0:
		return nil, fmt.Errorf("source %q: not in the context", pattern)
	}
	return names, nil
}

func (c *buildContext) ignored(name string) (bool, error) {
	if c.ignore == nil {
		return false, nil
	}
	return c.ignore.MatchesOrParentMatches(name)
}

// negates reports whether a file in an ignored directory may be included nevertheless.
func (c *buildContext) negates() bool { return c.ignore != nil && c.ignore.Exclusions() }

// member is a file of a source. The name is relative to the context, or to the root of an image.
type member struct {
	*tar.Header
	source string // that it belongs to
	single bool   // the source is this file, and no directory
}

// found is a member of the context, with the directory that it is opened from.
type found struct {
	member
	in   *os.Root
	base string
	dir  int // descriptor of in; -1: base is a path
}

func (f *found) regular() bool { return f.Typeflag == tar.TypeReg }

// walk calls visit for the files of a source, which find returned. A link that is a source is followed. A directory comes
// before its files, which are in order of name.
func (c *buildContext) walk(source string, visit func(*found) error) error {
	info, err := c.root.Stat(source)
	if err != nil {
		return fmt.Errorf("source %q: %w", source, fsutil.Reason(err))
	}
	f := &found{member: member{source: source, single: !info.IsDir()}, in: c.root, base: source, dir: -1}
	if f.single {
		return c.visit(f, source, info, visit)
	}
	return c.tree(f, source, info, visit)
}

// tree visits a file and, if it is a directory, what is below it. A directory that is ignored may have files that are not.
func (c *buildContext) tree(f *found, name string, info fs.FileInfo, visit func(*found) error) error {
	skip, err := c.ignored(name)
	if err != nil || skip && !(info.IsDir() && c.negates()) {
		return err
	}
	if !skip {
		err = c.visit(f, name, info, visit)
	}
	if err != nil || !info.IsDir() {
		return err
	}
	return c.below(f, name, visit)
}

// below walks what is in a directory. It opens it from the directory above, so that a deep tree costs no more than a
// wide one.
func (c *buildContext) below(dir *found, name string, visit func(*found) error) error {
	in, err := dir.in.OpenRoot(dir.base)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	defer in.Close()
	list, err := in.Open(".")
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	defer list.Close()
	entries, err := list.ReadDir(-1)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		f := &found{member: member{source: dir.source}, in: in, base: e.Name(), dir: int(list.Fd())}
		if err := c.tree(f, path.Join(name, e.Name()), info, visit); err != nil {
			return err
		}
	}
	return nil
}

// visit describes a file for the caller of walk.
func (c *buildContext) visit(f *found, name string, info fs.FileInfo, visit func(*found) error) error {
	st := info.Sys().(*syscall.Stat_t)
	f.Header = &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(st.Mode & 0o7777), ModTime: info.ModTime().Truncate(time.Second)}
	switch m := info.Mode(); {
	case m.IsDir():
		f.Typeflag = tar.TypeDir
	case m&fs.ModeSymlink != 0:
		link, err := f.in.Readlink(f.base)
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		f.Typeflag, f.Linkname = tar.TypeSymlink, link
	case m.IsRegular():
		f.Size = info.Size()
	case m&fs.ModeSocket != 0 && !f.single:
		return nil // docker build omits it too
	default:
		return fmt.Errorf("source %q: a %s cannot be copied: exclude it in .containerignore", name, kindOf(m))
	}
	return visit(f)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "FIFO"
	case m&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// copyBuffer is the size of the buffer for the content of files.
const copyBuffer = 128 << 10

// sum adds the files of a source to a digest: names, kinds, modes, contents and links, but no times.
func (c *buildContext) sum(to hash.Hash, source string, keep func(member) bool) error {
	one, buf := sha256.New(), make([]byte, copyBuffer)
	return c.walk(source, func(f *found) error {
		if !keep(f.member) {
			return nil
		}
		content := ""
		if f.regular() {
			one.Reset()
			if _, err := f.copy(one, buf); err != nil {
				return fmt.Errorf("read context: %w", err)
			}
			content = hex.EncodeToString(one.Sum(nil))
		}
		_, err := fmt.Fprintf(to, "%q %c %o %q %s %t\n", f.Name, f.Typeflag, f.Mode, f.Linkname, content, f.single)
		return err
	})
}

// copy copies the content of a file. A file of a directory is opened without an os.File, which would ask epoll about it.
func (f *found) copy(to io.Writer, buf []byte) (int64, error) {
	if f.dir < 0 {
		from, err := f.in.Open(f.base)
		if err != nil {
			return 0, err
		}
		defer from.Close()
		return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf)
	}
	fd, err := unix.Openat(f.dir, f.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, &fs.PathError{Op: "open", Path: f.Name, Err: err}
	}
	defer unix.Close(fd)
	return io.CopyBuffer(struct{ io.Writer }{to}, fsutil.RawReader(fd), buf)
}

// send writes the files of a source to w, under the names that rename returns; "" omits one.
func (c *buildContext) send(w *tar.Writer, source string, rename func(member) string) error {
	buf := make([]byte, copyBuffer)
	return c.walk(source, func(f *found) error {
		as := rename(f.member)
		if as == "" {
			return nil
		}
		if err := w.WriteHeader(f.header(as)); err != nil || !f.regular() {
			return err
		}
		n, err := f.copy(w, buf)
		if err == nil && n < f.Size || errors.Is(err, tar.ErrWriteTooLong) {
			err = errChanged
		}
		if err != nil {
			return fmt.Errorf("read %q: %w", f.Name, err)
		}
		return nil
	})
}

var errChanged = errors.New("it changed during the build")

// header returns the header of a member under another name.
func (m member) header(as string) *tar.Header {
	h := *m.Header
	h.Name = as
	if m.single {
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{tarball.FileRecord: "1"}
	}
	return &h
}
