package main

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
	"strings"
	"syscall"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

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

// openContext opens the directory of a build. Beside the Containerfile, FILE.containerignore or FILE.dockerignore counts
// first. typed is the Containerfile as the user named it; empty: it is the context's, or stdin.
func openContext(o *options, typed string) (*buildContext, error) {
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return nil, fmt.Errorf("open context %q: %w", o.dir, fsutil.Reason(err))
	}
	c := &buildContext{root: root}
	beside, file := func(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }, typed
	inside := func(name string) (*os.File, error) { return root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) }
	if typed == "" || o.stdin {
		beside, file = inside, filepath.Base(o.file)
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

// open opens the file that info describes. Another file may have its name by now: a FIFO, which must not block, or a link
// to a file that the ignore file excludes.
func (c *buildContext) open(name string, info fs.FileInfo) (*os.File, error) {
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if now, err := f.Stat(); err != nil || !os.SameFile(now, info) {
		f.Close()
		return nil, errors.Join(err, errChanged)
	}
	return f, nil
}

var errChanged = errors.New("it changed while it was read")

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

// walk calls visit for the files of a source, which find returned. A link that is a source is followed, but not to what
// the ignore file excludes.
func (c *buildContext) walk(ctx context.Context, source string, visit func(m member, info fs.FileInfo) error) error {
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
	if !info.IsDir() {
		return c.visit(source, source, true, info, visit)
	}
	return fs.WalkDir(c.root.FS(), source, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		below := name
		if source != "." {
			below = path.Join(real, strings.TrimPrefix(name, source))
		}
		skip, err := c.ignored(below)
		switch {
		case err != nil:
			return err
		case skip && e.IsDir() && !c.negates():
			return fs.SkipDir
		case skip:
			return nil
		}
		info, err := c.root.Lstat(name)
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		if name == source { // a link to a directory
			if info, err = c.root.Stat(name); err != nil {
				return fmt.Errorf("read context: %w", err)
			}
		}
		return c.visit(source, name, false, info, visit)
	})
}

func (c *buildContext) visit(source, name string, single bool, info fs.FileInfo, visit func(member, fs.FileInfo) error) error {
	link := ""
	switch m := info.Mode(); {
	case m&fs.ModeSymlink != 0:
		var err error
		if link, err = c.root.Readlink(name); err != nil {
			return fmt.Errorf("read context: %w", err)
		}
	case m&fs.ModeSocket != 0 && !single:
		return nil // docker build omits it too
	case !m.IsRegular() && !m.IsDir():
		return fmt.Errorf("source %q: a %s cannot be copied: exclude it in .containerignore", name, kindOf(m))
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return fmt.Errorf("read context: %w", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	*h = tar.Header{Typeflag: h.Typeflag, Name: name, Linkname: link, Mode: int64(st.Mode & 0o7777), ModTime: h.ModTime, Size: h.Size}
	return visit(member{h, source, single}, info)
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

// sum adds the files of a source to a digest: names, kinds, modes, contents and links, but no times.
func (c *buildContext) sum(ctx context.Context, to hash.Hash, source string, keep func(member) bool) error {
	return c.walk(ctx, source, func(m member, info fs.FileInfo) error {
		if !keep(m) {
			return nil
		}
		if !info.Mode().IsRegular() {
			m.add(to, nil)
			return nil
		}
		content, err := c.copy(ctx, m, info, io.Discard)
		m.add(to, content)
		return err
	})
}

// add adds a member to the digest of a source. content is the digest of a file's content.
func (m member) add(to hash.Hash, content []byte) {
	fmt.Fprintf(to, "%q %c %o %q %x %t\n", m.Name, m.Typeflag, m.Mode, m.Linkname, content, m.single)
}

// copy copies the content of a file, of the size that info says, and returns its digest.
func (c *buildContext) copy(ctx context.Context, m member, info fs.FileInfo, to io.Writer) ([]byte, error) {
	f, err := c.open(m.Name, info)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", m.Name, err)
	}
	defer f.Close()
	one := sha256.New()
	switch n, err := io.Copy(to, io.TeeReader(io.LimitReader(fsutil.ContextReader(ctx, f), info.Size()), one)); {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("read %q: %w", m.Name, err)
	case n < info.Size():
		return nil, fmt.Errorf("read %q: %w", m.Name, errChanged)
	}
	return one.Sum(nil), nil
}

// send writes the files of a source to w, placed by p. It adds what it wrote to sum, as [buildContext.sum] does.
func (c *buildContext) send(ctx context.Context, w *tar.Writer, sum hash.Hash, source string, p *placing) error {
	return c.walk(ctx, source, func(m member, info fs.FileInfo) error {
		as := p.rename(m)
		if as == "" {
			return nil
		}
		h := m.header(as)
		h.Mode = p.chmod.mode(h.Mode, info.IsDir())
		if !info.Mode().IsRegular() {
			m.add(sum, nil)
			h.Size = 0
			return w.WriteHeader(h)
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		content, err := c.copy(ctx, m, info, w)
		m.add(sum, content)
		return err
	})
}

// header returns the header of a member under another name.
func (m member) header(as string) *tar.Header {
	h := *m.Header
	h.Name, h.Format = as, tar.FormatPAX
	if m.single {
		h.PAXRecords = map[string]string{tarball.FileRecord: "1"}
	}
	return &h
}
