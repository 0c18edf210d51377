package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/ipc"
)

// layerCache is where the unpacked layers of a sandbox's image are.
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

// hold keeps the layers from being removed until what it returns is closed.
func (s *sandbox) hold(cache layers.Cache) (*layers.Held, error) {
	held, err := cache.Hold(diffIDs(s.spec.Rootfs))
	var missing *layers.MissingError
	if errors.As(err, &missing) {
		return nil, ipc.Errorf(ipc.CodeMissing, "mount image: %w", err)
	}
	return held, err
}

// unpacked is an error where layers of s are not: their caller unpacks them, and calls again.
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

// use keeps the image that the layers are of from being removed until the file is closed. A spare
// does not: nobody uses it, and who removes the image is not to be told so. It is nil where there is nothing to
// lock, or it is real root's and we may not open it: the caller holds the image too, while it lives.
func (s *sandbox) use() *os.File {
	r := s.spec.Rootfs
	_, hex, _ := strings.Cut(r.Digest, ":")
	used, err := os.Open(filepath.Join(r.Store, "used", filepath.Base(hex)))
	if err != nil {
		return nil
	}
	unix.Flock(int(used.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return used
}

// holdAgain takes hold of the layers that a spare was mounted on. It is an error if one of them was
// removed meanwhile, also if it is there anew: a layer that is removed loses its name first, so what has the
// name and is the same directory is whole.
func (s *sandbox) holdAgain() error {
	held, err := s.hold(s.layerCache())
	if err != nil {
		return err
	}
	used := s.use()
	release := func() { held.Close(); used.Close() } // to close what is nil does nothing
	now, err := inodesOf(held.FS)
	held.CloseFS()
	if err == nil && !slices.Equal(now, s.image.layers) {
		err = errors.New("hold image: it is not the one that is mounted")
	}
	if err != nil {
		release()
		return err
	}
	s.undo.last(release)
	return nil
}

// inode tells a directory from any other for as long as it is mounted.
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
