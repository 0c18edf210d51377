package executor

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner/tarball"
)

// buildContext is the directory that COPY reads. No link leads out of it.
type buildContext struct {
	root   *os.Root
	ignore *patternmatcher.PatternMatcher
}

// ignoreFiles are the names of the file with the patterns of ignored files. The first that exists is used.
var ignoreFiles = []string{".containerignore", ".dockerignore"}

// maxIgnore bounds that file in bytes.
const maxIgnore = 1 << 20

// apartFromState refuses a context with demesne's own files, such as the home directory: an image would have its keys.
func apartFromState(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("open context %q: %w", dir, err)
	}
	for _, path := range fsutil.PrivateState() {
		if fsutil.Overlap(fsutil.WithoutLinks(abs), path) {
			return text.Hinted(fmt.Errorf("context %q: overlaps demesne's own files %q", dir, path), "name a directory apart from them")
		}
	}
	return nil
}

// openContext opens the directory of a build. FILE.containerignore or FILE.dockerignore beside the Containerfile
// comes first. typed is the Containerfile as the user named it; empty: it is the context's, or stdin.
func openContext(o *Options, typed string) (*buildContext, error) {
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open context %q: %w", o.Dir, fsutil.Reason(err))
	}
	if err := apartFromState(o.Dir); err != nil {
		root.Close()
		return nil, err
	}
	c := &buildContext{root: root}
	inside := func(name string) (*os.File, error) { return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }
	beside, file := inside, path.Base(o.File)
	if typed != "" && !o.stdin {
		beside, file = func(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }, typed
	}
	for i, name := range append([]string{file + ignoreFiles[0], file + ignoreFiles[1]}, ignoreFiles...) {
		open := beside
		if i >= len(ignoreFiles) {
			open = inside
		}
		text, err := small(open, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var patterns []string
		if err == nil {
			patterns, err = ignorefile.ReadAll(bytes.NewReader(text))
		}
		if err == nil {
			c.ignore, err = patternmatcher.New(patterns)
		}
		if err != nil {
			root.Close()
			return nil, fmt.Errorf("read %q: %w", name, fsutil.Reason(err))
		}
		break
	}
	return c, nil
}

// small reads a regular file of at most maxIgnore bytes. A part of it would not exclude all that the user wants excluded.
func small(open func(string) (*os.File, error), name string) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, errors.New("not a regular file"))
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIgnore+1))
	if err == nil && len(text) > maxIgnore {
		err = fmt.Errorf("larger than %d bytes", maxIgnore)
	}
	return text, err
}

// openSame opens the file that info describes. Another file may have its name by now: a FIFO, which must not block, or a
// link to a file that the ignore file excludes.
func openSame(in *os.Root, name string, info fs.FileInfo) (*os.File, error) {
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(now, info) {
		err = errChanged
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// find returns the names that a source's pattern matches, relative to the context. A pattern with * ? or [ may match none.
func (c *buildContext) find(pattern string, deep bool) ([]string, error) {
	clean := path.Clean(strings.TrimLeft(pattern, "/"))
	if clean == ".." || strings.HasPrefix(clean, "../") {
		return nil, fmt.Errorf("source %q: outside of the context", pattern)
	}
	if clean == "." {
		return []string{"."}, nil
	}
	found, err := tarball.Glob(c.root.FS(), clean, deep, func(string) bool { return false })
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("source %q: not in the context", pattern)
	}
	if err != nil {
		return nil, fmt.Errorf("source %q: %w", pattern, fsutil.Reason(err))
	}
	var names []string
	for _, name := range found {
		skip, err := c.ignored(name)
		if err != nil {
			return nil, err
		}
		if !skip || c.negates() && c.isDir(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && len(found) > 0 && !strings.ContainsAny(pattern, "*?[") {
		return nil, fmt.Errorf("source %q: excluded by the ignore file", pattern)
	}
	return names, nil
}

func (c *buildContext) ignored(name string) (bool, error) {
	if c.ignore == nil {
		return false, nil
	}
	return c.ignore.MatchesOrParentMatches(name)
}

func (c *buildContext) isDir(name string) bool {
	info, err := c.root.Stat(name)
	return err == nil && info.IsDir()
}

// negates reports whether a file in an ignored directory may be included nevertheless.
func (c *buildContext) negates() bool { return c.ignore != nil && c.ignore.Exclusions() }

// member is a file of a source. The name is relative to the context, or to the root of an image.
type member struct {
	*tar.Header
	source string // that it belongs to
	single bool   // the source is this file, and no directory
}

// real returns where the links in a name lead, as a name of the context.
func (c *buildContext) real(name string) (string, error) {
	done, rest, links := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			done = path.Dir(done)
			continue
		}
		at := path.Join(done, part)
		to, err := c.root.Readlink(at)
		if err != nil { // not a link
			done = at
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return done, nil
}

// maxLinks bounds the links that lead to one file, as the kernel does.
const maxLinks = 40

// found is a member of the context, with the directory that it is opened from.
type found struct {
	member
	in   *os.Root
	base string
	dir  int // descriptor of in; -1: base is a path
	info fs.FileInfo
}

func (f *found) regular() bool { return f.Typeflag == tar.TypeReg }

// walk calls visit for the files of a source, which find returned. A link that is a source is followed, but not to what
// the ignore file excludes. A directory comes before its files, which are in order of name.
func (c *buildContext) walk(ctx context.Context, source string, visit func(*found) error) error {
	info, err := c.root.Stat(source)
	if err != nil {
		return fmt.Errorf("source %q: %w", source, fsutil.Reason(err))
	}
	real, err := c.real(source)
	if err != nil {
		return fmt.Errorf("source %q: %w", source, err)
	}
	skip, err := c.ignored(real)
	if err != nil {
		return err
	}
	if skip && real != source && !(info.IsDir() && c.negates()) {
		return fmt.Errorf("source %q: it leads to %q, which the ignore file excludes", source, real)
	}
	f := &found{member: member{source: source, single: !info.IsDir()}, in: c.root, base: source, info: info, dir: -1}
	w := walking{c, ctx, source, real, visit}
	if f.single {
		return w.visit(f, source)
	}
	return w.tree(f, source)
}

// walking is the state of one walk.
type walking struct {
	*buildContext
	ctx          context.Context
	source, real string // the same unless the source is a link, or below one
	found        func(*found) error
}

// tree visits a file and, if it is a directory, what is below it. A directory that is ignored may have files that are not.
func (w *walking) tree(f *found, name string) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	at := name
	if w.source != "." {
		at = path.Join(w.real, strings.TrimPrefix(name, w.source))
	}
	skip, err := w.ignored(at)
	if err != nil || skip && !(f.info.IsDir() && w.negates()) {
		return err
	}
	if !skip {
		err = w.visit(f, name)
	}
	if err != nil || !f.info.IsDir() {
		return err
	}
	return w.below(f, name)
}

// below walks what is in a directory. It opens it from the directory above, so that a deep tree costs no more than a
// wide one.
func (w *walking) below(dir *found, name string) error {
	in, err := dir.in.OpenRoot(dir.base)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	defer in.Close()
	now, err := in.Stat(".")
	if err == nil && !os.SameFile(now, dir.info) {
		err = errChanged
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", name, fsutil.Reason(err))
	}
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
		f := &found{member: member{source: dir.source}, in: in, base: e.Name(), info: info, dir: int(list.Fd())}
		if err := w.tree(f, path.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// visit describes a file for the caller of walk.
func (w *walking) visit(f *found, name string) error {
	info := f.info
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
	return w.found(f)
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
func (c *buildContext) sum(ctx context.Context, to hash.Hash, source string, keep func(member) bool) error {
	one, buf := sha256.New(), make([]byte, copyBuffer)
	return c.walk(ctx, source, func(f *found) error {
		if !keep(f.member) {
			return nil
		}
		if !f.regular() {
			return f.add(to, nil)
		}
		one.Reset()
		if err := f.copy(ctx, one, buf); err != nil {
			return err
		}
		return f.add(to, one)
	})
}

// add adds a member to the digest of a source. content is the digest of a file's content.
func (m member) add(to, content hash.Hash) error {
	var sum []byte
	if content != nil {
		sum = content.Sum(nil)
	}
	_, err := fmt.Fprintf(to, "%q %c %o %q %x %t\n", m.Name, m.Typeflag, m.Mode, m.Linkname, sum, m.single)
	return err
}

// open opens the file that was found. A file of a directory is opened without an os.File, which would ask epoll about it.
func (f *found) open() (io.ReadCloser, error) {
	if f.dir < 0 {
		return openSame(f.in, f.base, f.info)
	}
	fd, err := unix.Openat(f.dir, f.base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	then, ok := f.info.Sys().(*syscall.Stat_t)
	var now unix.Stat_t
	if err = unix.Fstat(fd, &now); err == nil && (!ok || now.Dev != then.Dev || now.Ino != then.Ino) {
		err = errChanged
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return rawFile{fsutil.RawReader(fd)}, nil
}

// rawFile is an open file without an os.File.
type rawFile struct{ fsutil.RawReader }

func (f rawFile) Close() error { return unix.Close(int(f.RawReader)) }

// copy copies the content of a file, of the size that it had when it was found.
func (f *found) copy(ctx context.Context, to io.Writer, buf []byte) error {
	from, err := f.open()
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Name, err)
	}
	defer from.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, io.LimitReader(fsutil.ContextReader(ctx, from), f.Size), buf)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && n < f.Size:
		err = errChanged
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", f.Name, err)
	}
	return nil
}

// send writes the files of a source to w, placed by p. It adds what it wrote to sum, as [buildContext.sum] does.
func (c *buildContext) send(ctx context.Context, w *tar.Writer, sum hash.Hash, source string, p *placing) error {
	one, buf := sha256.New(), make([]byte, copyBuffer)
	return c.walk(ctx, source, func(f *found) error {
		as := p.rename(f.member)
		if as == "" {
			return nil
		}
		h := f.header(as)
		h.Mode = p.chmod.mode(h.Mode, f.Typeflag == tar.TypeDir)
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if !f.regular() {
			return f.add(sum, nil)
		}
		one.Reset()
		if err := f.copy(ctx, io.MultiWriter(w, one), buf); err != nil {
			return err
		}
		return f.add(sum, one)
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
