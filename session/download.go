package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"demesne/runner/tarball"
)

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
