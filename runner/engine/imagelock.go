package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/ipc"
)

// layerCache returns the cache of the unpacked layers of a sandbox's image.
func (s *sandbox) layerCache() layers.Cache {
	return layers.Open(s.spec.Rootfs.Store, layerKey(s.e.boot))
}

func diffIDs(r *runner.Rootfs) []layers.DiffID {
	ids := make([]layers.DiffID, len(r.Layers))
	for i, id := range r.Layers {
		ids[i] = layers.DiffID(id)
	}
	return ids
}

// hold locks the layers against removal until the result is closed.
func (s *sandbox) hold(cache layers.Cache) (*layers.Held, error) {
	held, err := cache.Hold(diffIDs(s.spec.Rootfs))
	var missing *layers.MissingError
	if errors.As(err, &missing) {
		return nil, ipc.Errorf(ipc.CodeMissing, "mount image: %w", err)
	}
	return held, err
}

// unpacked returns an error if layers of s are not unpacked. Its caller unpacks them and calls again.
func (s *sandbox) unpacked() error {
	if r := s.spec.Rootfs; r == nil || r.Dir != "" {
		return nil
	}
	held, err := s.hold(s.layerCache())
	if err == nil {
		held.Close()
	}
	return err
}

// use locks the image against removal until the returned file is closed. A prepared sandbox does not lock its
// image, because it is not in use. The result is nil if no lock file exists, or if the runner may not open real
// root's. The caller then holds a lock itself as long as it lives.
func (s *sandbox) use() *os.File {
	r := s.spec.Rootfs
	_, hex, _ := strings.Cut(r.Digest, ":")
	used, err := os.Open(filepath.Join(r.Store, "used", filepath.Base(hex)))
	if err != nil {
		return nil
	}
	flock.Try(used, flock.Shared)
	return used
}

// holdAgain locks the layers that a prepared sandbox was mounted on. It fails if a layer was removed in between,
// even if it was unpacked again. Removal renames a layer first, so a layer with that name and the same inode is
// complete.
func (s *sandbox) holdAgain() error {
	held, err := s.hold(s.layerCache())
	if err != nil {
		return err
	}
	used := s.use()
	release := func() { held.Close(); used.Close() } // closing nil is a no-op
	now, err := inodesOf(held.FS)
	held.CloseFS()
	if err == nil && !slices.Equal(now, s.image.layers) {
		err = errors.New("hold image: another image is mounted")
	}
	if err != nil {
		release()
		return err
	}
	s.undo.last(release)
	return nil
}

// inode identifies a directory while it is mounted.
type inode struct{ dev, ino uint64 }

func inodesOf(dirs []*os.File) (list []inode, err error) {
	for _, d := range dirs {
		var st unix.Stat_t
		if err := unix.Fstat(int(d.Fd()), &st); err != nil {
			return nil, os.NewSyscallError("fstat", err)
		}
		list = append(list, inode{st.Dev, st.Ino})
	}
	return list, nil
}
