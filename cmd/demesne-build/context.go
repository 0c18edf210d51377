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
	beside, file := os.Open, typed
	if typed == "" || o.stdin {
		beside, file = root.Open, filepath.Base(o.file)
	}
	for i, name := range append([]string{file + ignoreFiles[0], file + ignoreFiles[1]}, ignoreFiles...) {
		open := beside
		if i >= len(ignoreFiles) {
			open = root.Open
		}
		f, err := open(name)
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

// find returns the names that a source's pattern matches, relative to the context. A pattern with * ? or [ may match none.
func (c *buildContext) find(pattern string, deep bool) ([]string, error) {
	clean := path.Clean(strings.TrimPrefix(pattern, "/"))
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
		if !skip || c.negates() {
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

// negates reports whether a file in an ignored directory may be included nevertheless.
func (c *buildContext) negates() bool { return c.ignore != nil && c.ignore.Exclusions() }

// member is a file of a source. The name is relative to the context, or to the root of an image.
type member struct {
	*tar.Header
	source string // that it belongs to
	single bool   // the source is this file, and no directory
}

// walk calls visit for the files of a source, which find returned. A link that is a source is followed.
func (c *buildContext) walk(source string, visit func(m member, info fs.FileInfo) error) error {
	info, err := c.root.Stat(source)
	if err != nil {
		return fmt.Errorf("source %q: %w", source, fsutil.Reason(err))
	}
	if !info.IsDir() {
		return c.visit(source, source, true, info, visit)
	}
	return fs.WalkDir(c.root.FS(), source, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		skip, err := c.ignored(name)
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
func (c *buildContext) sum(to hash.Hash, source string, keep func(member) bool) error {
	return c.walk(source, func(m member, info fs.FileInfo) error {
		if !keep(m) {
			return nil
		}
		content := ""
		if info.Mode().IsRegular() {
			f, err := c.root.Open(m.Name)
			if err != nil {
				return fmt.Errorf("read context: %w", err)
			}
			defer f.Close()
			one := sha256.New()
			if _, err := io.Copy(one, f); err != nil {
				return fmt.Errorf("read context: %w", err)
			}
			content = hex.EncodeToString(one.Sum(nil))
		}
		fmt.Fprintf(to, "%q %c %o %q %s %t\n", m.Name, m.Typeflag, m.Mode, m.Linkname, content, m.single)
		return nil
	})
}

// send writes the files of a source to w, placed by p.
func (c *buildContext) send(w *tar.Writer, source string, p *placing) error {
	return c.walk(source, func(m member, info fs.FileInfo) error {
		as := p.rename(m)
		if as == "" {
			return nil
		}
		h := m.header(as)
		h.Mode = p.chmod.mode(h.Mode, info.IsDir())
		if !info.Mode().IsRegular() {
			h.Size = 0
			return w.WriteHeader(h)
		}
		f, err := c.root.Open(m.Name)
		if err != nil {
			return fmt.Errorf("read context: %w", err)
		}
		defer f.Close()
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.CopyN(w, f, h.Size); err != nil {
			return fmt.Errorf("read %q: %w", m.Name, err)
		}
		return nil
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
