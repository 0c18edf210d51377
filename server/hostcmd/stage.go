package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Bounds of a copy into a sandbox.
const (
	maxCopied  = 256 << 20 // bytes
	maxCopies  = 10000     // files and directories
	copyMode   = 0o600
	directMode = 0o700
)

func timeOf(t unix.Timespec) time.Time { return time.Unix(t.Unix()).UTC() }

// copyIn copies a file or directory into a sandbox. It makes a private copy first, by descriptor, so that nothing can be exchanged
// on the way.
func (g *Guard) copyIn(ctx context.Context, f *frozen) (*Result, error) {
	if g.options.Copy == nil {
		return nil, errors.New("this server copies nothing into sandboxes")
	}
	at, err := f.File.reopen(File.sameFile)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if err := onDisk(at); err != nil {
		return nil, fmt.Errorf("%q: %w", f.Given, err)
	}
	tmp, err := os.MkdirTemp(g.store.dir, "copy-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	s := &staging{guard: g, listed: g.listed(f), left: maxCopied, files: maxCopies, top: f.File.Path}
	to := filepath.Join(tmp, filepath.Base(f.File.Path))
	if f.File.is(unix.S_IFDIR) {
		err = s.tree(at, to)
	} else {
		err = s.file(at, to, f.File.Mode)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %q: %w", f.Given, err)
	}
	if err := g.options.Copy(ctx, f.Caller, to, f.Sandbox, f.Dst); err != nil {
		return nil, err
	}
	return &Result{Size: maxCopied - s.left, Skipped: s.skipped}, nil
}

// staging is a private copy that is being made.
type staging struct {
	guard   *Guard
	listed  []string
	top     string
	left    int64
	files   int
	skipped int
}

var errMuch = fmt.Errorf("more than %d bytes or %d files", maxCopied, maxCopies)

func (s *staging) file(at *os.File, path string, mode uint32) error {
	from, err := readable(at)
	if err != nil {
		return err
	}
	defer from.Close()
	return s.content(from, path, mode)
}

func (s *staging) content(from io.Reader, path string, mode uint32) error {
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, copyMode|os.FileMode(mode&0o111)&directMode)
	if err != nil {
		return err
	}
	defer to.Close()
	n, err := io.Copy(to, io.LimitReader(from, s.left+1))
	if s.left -= n; s.left < 0 {
		return errMuch
	}
	return err
}

// tree copies the files below a directory. It skips links, special files, and what the caller may not read.
func (s *staging) tree(at *os.File, path string) error {
	root, err := os.OpenRoot(fsutil.FDPath(int(at.Fd())))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := os.Mkdir(path, directMode); err != nil {
		return err
	}
	var failed error
	missed := fsutil.Walk(root, maxCopies, func(e fsutil.WalkEntry) bool {
		failed = s.entry(e, path)
		return failed == nil
	})
	if failed == nil && missed > 0 {
		failed = errMuch
	}
	return failed
}

func (s *staging) entry(e fsutil.WalkEntry, path string) error {
	info, err := e.Info()
	if err != nil || s.private(filepath.Join(s.top, e.Path)) || s.under(path, e.Path) {
		s.skipped++
		return nil
	}
	to := filepath.Join(path, e.Path)
	switch {
	case info.IsDir():
		return os.Mkdir(to, directMode)
	case !info.Mode().IsRegular():
		s.skipped++
		return nil
	}
	from, err := e.Open()
	if err != nil {
		s.skipped++ // not readable, or exchanged
		return nil
	}
	defer from.Close()
	if onDisk(from) != nil {
		s.skipped++
		return nil
	}
	return s.content(from, to, uint32(info.Mode().Perm()))
}

// under reports whether the parent of an entry was skipped.
func (s *staging) under(path, name string) bool {
	return !fsutil.Exists(filepath.Dir(filepath.Join(path, name)))
}

// private reports whether a path is demesne's own, or has credentials.
func (s *staging) private(path string) bool {
	if slices.ContainsFunc(s.guard.private, func(p string) bool { return fsutil.Within(path, p) }) {
		return true
	}
	if s.guard.options.Credential == nil || !hidden(path, s.top) { // other places were looked for when the request arrived
		return false
	}
	_, found := s.guard.options.Credential(path, s.listed)
	return found
}
