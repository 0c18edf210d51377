package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/runner/tarball"
)

// Place is one end of a copy.
type Place struct {
	Sandbox string    // id or name; empty: the host
	Path    string    // absolute in a sandbox
	Dir     *os.Root  // directory of the host that receives a copy under its own name, in place of Path
	Tar     io.Writer // receives a copy as a tar, in place of Path
}

// Copy copies a file or a whole directory into a sandbox, out of one, or between two. Links are copied in as links,
// and not copied out; the report lists the entries that were skipped. A source on the host must be a path without
// symbolic links. If to.Path ends in a slash, or is a directory of the host, the copy goes into it under the source's
// name. $DEMESNE_MAX_COPY_BYTES and _FILES bound a copy; one that exceeds them leaves nothing.
func (s *Service) Copy(ctx context.Context, from, to Place, cb Callbacks) (did tarball.Report, err error) {
	limits, err := s.quota.copies()
	if err != nil {
		return did, err
	}
	if cb.Moves != nil {
		limits.Meter = &tarball.Meter{}
		cb.Moves(limits.Meter.Moved)
	}
	var source, target *Sandbox
	if from.Sandbox != "" {
		source, err = s.Open(ctx, from.Sandbox, cb)
	}
	if err == nil && to.Sandbox != "" {
		target, err = s.Open(ctx, to.Sandbox, cb)
	}
	name := path.Base(path.Clean(from.Path))
	switch {
	case err != nil:
	case source == nil && target == nil:
		err = errors.New("neither place is in a sandbox")
	case source == nil:
		did, err = copyIn(ctx, from.Path, target, to.Path, limits)
	case name == "/":
		err = errors.New("will not copy /")
	case target == nil:
		did, err = copyOut(ctx, source, from.Path, name, to, limits)
	default:
		if strings.HasSuffix(to.Path, "/") {
			to.Path += name
		}
		did, err = source.CopyTo(ctx, from.Path, target.Sandbox, to.Path, limits)
	}
	return did, withCopyHint(err)
}

// copyIn follows no symbolic link in src: a sandbox may have put one there since the caller resolved the path.
func copyIn(ctx context.Context, src string, b *Sandbox, dst string, l tarball.Limits) (did tarball.Report, err error) {
	dir, err := openResolved(filepath.Dir(src), unix.O_PATH)
	if err != nil {
		return did, fmt.Errorf("source %q: %w", src, err)
	}
	defer dir.Close()
	return b.CopyIn(ctx, fsutil.FDPath(int(dir.Fd()))+"/"+filepath.Base(src), dst, l)
}

// openResolved opens a directory, and fails if its path has a symbolic link (openat2(2)).
func openResolved(path string, flags uint64) (*os.File, error) {
	fd, err := fsutil.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// copyOut copies src into an existing directory, or creates it as to.Path.
func copyOut(ctx context.Context, b *Sandbox, src, name string, to Place, l tarball.Limits) (did tarball.Report, err error) {
	if to.Tar != nil {
		return b.Archive(ctx, src, to.Tar, l)
	}
	if to.Dir != nil {
		return b.CopyOut(ctx, src, to.Dir, l)
	}
	dst := to.Path
	dir, as := filepath.Split(filepath.Clean(dst))
	if info, err := os.Stat(dst); err == nil && info.IsDir() {
		dir, as = dst, name
	} else if strings.HasSuffix(dst, "/") {
		return did, fmt.Errorf("destination %q: no such directory", dst)
	}
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return did, fmt.Errorf("destination %q: %w", dst, fsutil.Reason(err))
	}
	defer root.Close()
	p, err := tarball.NewPart(root)
	if err != nil {
		return did, fmt.Errorf("destination %q: %w", dst, fsutil.Reason(err))
	}
	defer p.Remove()
	if did, err = b.CopyOut(ctx, src, p.Dir, l); err != nil {
		return did, err
	}
	if err := p.Deliver(name, as); err != nil {
		return did, fmt.Errorf("destination %q: %w", dst, fsutil.Reason(err))
	}
	return did, nil
}

// downloads is the directory, below the output root and the sandbox's id, that receives downloads.
const downloads = "downloads"

// Download copies src out of a sandbox, to a directory below the output root that belongs to the sandbox's downloads.
// It replaces an earlier download with the same base name, and returns the path of the copy.
func (s *Service) Download(ctx context.Context, idOrName, src string, cb Callbacks) (did tarball.Report, whole string, err error) {
	name := path.Base(path.Clean(src))
	if name == "/" {
		return did, "", errors.New("will not copy / out")
	}
	info, err := s.Inspect(ctx, idOrName)
	if err != nil {
		return did, "", err
	}
	at, err := s.OutputRoot()
	if err != nil {
		return did, "", err
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return did, "", fmt.Errorf("download: %w", err)
	}
	defer root.Close()
	to := path.Join(info.ID, downloads)
	if err = s.outputs.mark(at, info.ID); err == nil {
		did, err = s.fetch(ctx, Place{Sandbox: info.ID, Path: src}, root, to, cb)
	}
	if err != nil {
		root.Remove(to) // fails if it is not empty
		root.Remove(info.ID)
		return did, "", err
	}
	return did, filepath.Join(at, to, name), nil
}

// fetch first copies src to a directory of its own, so that concurrent downloads do not collide.
func (s *Service) fetch(ctx context.Context, from Place, root *os.Root, to string, cb Callbacks) (did tarball.Report, err error) {
	name := path.Base(path.Clean(from.Path))
	part := path.Join(to, ".part-"+rand.Text())
	if err := root.MkdirAll(part, ownerOnly); err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	defer root.RemoveAll(part)
	dir, err := root.OpenRoot(part)
	if err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	defer dir.Close()
	if did, err = s.Copy(ctx, from, Place{Dir: dir}, cb); err != nil {
		return did, err
	}
	if info, err := dir.Lstat(name); err == nil && info.Mode().IsRegular() {
		dir.Chmod(name, 0o600)
	}
	s.swap.Lock() // an earlier download is replaced, not merged
	defer s.swap.Unlock()
	whole := path.Join(to, name)
	if root.Rename(path.Join(part, name), whole) == nil {
		return did, nil
	}
	// The existing entry is of another kind, or is a directory that is not empty.
	if err := root.RemoveAll(whole); err != nil {
		return did, fmt.Errorf("download: %w", err)
	}
	return did, root.Rename(path.Join(part, name), whole)
}
