package sandbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/rootfs"
	"demesne/rootfs/layers"
	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// image is the part of a sandbox that holds its image: the layers, locked, and the directory of its writes. One
// goroutine at a time uses it: the one that makes the sandbox.
//
// A prepared sandbox does not lock its image, so that removing an image need not wait for unused sandboxes. It locks
// the layers while it mounts them, and again when it is taken. It is discarded if the layers have changed in between.
type image struct {
	*identity
	layers  []inode       // that a prepared sandbox was mounted on
	stacked time.Duration // time to open and mount its layers
	scratch string        // directory of the writes, if they go to a disk
	upper   *os.File      // scratch, opened
}

// mount mounts the tree of an image and locks its layers until the sandbox ends. A prepared sandbox locks them
// only until they are mounted.
func (i *image) mount(l rootfs.Layout, m *ipc.Message) (*rootfs.Tree, error) {
	r, b := i.spec.Rootfs, i.machine.Boot
	cache := i.cache()
	of := rootfs.Image{
		WorkingDir: r.WorkingDir, User: r.User, UIDs: b.UIDs(), GIDs: b.GIDs(),
		Scratch: func() (string, error) { return i.newScratch(cache) },
	}
	if u := i.spec.User; u != nil {
		of.User = numeric(u)
	}
	if r.Dir != "" {
		of.Dir = source(m, api.SourceRootfs, r.Dir)
	} else {
		began := time.Now()
		held, err := i.hold(cache)
		if err != nil {
			return nil, err
		}
		defer held.CloseFS()
		if i.prepared {
			defer held.Close()
			if i.layers, err = inodesOf(held.FS); err != nil {
				return nil, err
			}
		} else {
			used := i.use()
			i.undo.add(func() { held.Close(); used.Close() })
		}
		of.Lowers, i.stacked = held.FS, time.Since(began)
	}
	t, err := rootfs.MountImage(l, of)
	if err == nil {
		i.stacked += t.Stacked
	}
	switch {
	case errors.Is(err, rootfs.ErrNoUser):
		return nil, ipc.Errorf(ipc.CodeInvalid, "%w", err)
	case errors.Is(err, rootfs.ErrForeign):
		return nil, &ipc.Error{
			Code: ipc.CodeInvalid, Text: "use " + r.Dir + ": " + err.Error(),
			Hint: "demesne import " + r.Dir + " NAME, or chown -R it to your user and group",
		}
	}
	return t, err
}

// newScratch makes a directory beside the layers, as an unfinished layer. A sweep of the store removes it if the
// runner is killed.
func (i *image) newScratch(cache layers.Cache) (string, error) {
	if i.spec.Rootfs.Store == "" {
		return "", errors.New("no image store")
	}
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	w, err := cache.Begin(ctx, layers.DiffID(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("scratch "+i.id)))))
	if err != nil {
		return "", err
	}
	i.undo.add(func() {
		if err := w.Abort(); err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: sandbox %s: %v\n", i.id, err)
		}
	})
	i.scratch = w.Dir
	return w.Dir, nil
}

// watchScratch opens the directory of the writes for the disk watchdog.
func (i *image) watchScratch() (err error) {
	if i.upper, err = os.Open(i.scratch); err != nil {
		return err
	}
	i.undo.add(func() { i.upper.Close() })
	return nil
}

func numeric(u *runner.User) string { return fmt.Sprintf("%d:%d", u.UID, u.GID) }

// cache returns the cache of the unpacked layers.
func (i *image) cache() layers.Cache {
	return layers.Open(i.spec.Rootfs.Store, layerKey(i.machine.Boot))
}

// diffIDs returns the layers of r, each once. Overlayfs refuses a directory that is a lower twice (ELOOP). The lower of
// two equal layers has no effect: the upper one makes, hides and removes the same names.
func diffIDs(r *runner.Rootfs) []layers.DiffID {
	var ids []layers.DiffID
	for i, id := range r.Layers {
		if !slices.Contains(r.Layers[i+1:], id) {
			ids = append(ids, layers.DiffID(id))
		}
	}
	return ids
}

// hold locks the layers against removal until the result is closed.
func (i *image) hold(cache layers.Cache) (*layers.Held, error) {
	held, err := cache.Hold(diffIDs(i.spec.Rootfs))
	var missing *layers.MissingError
	if errors.As(err, &missing) {
		return nil, ipc.Errorf(ipc.CodeMissing, "mount image: %w", err)
	}
	return held, err
}

// unpacked returns an error if layers of s are not unpacked. Its caller unpacks them and calls again.
func (i *image) unpacked() error {
	if r := i.spec.Rootfs; r == nil || r.Dir != "" {
		return nil
	}
	held, err := i.hold(i.cache())
	if err == nil {
		held.Close()
	}
	return err
}

// use locks the image against removal until the returned file is closed. A prepared sandbox does not lock its
// image, because it is not in use. The result is nil if no lock file exists, or if the runner may not open real
// root's. The caller then holds a lock itself as long as it lives.
func (i *image) use() *os.File {
	r := i.spec.Rootfs
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
func (i *image) holdAgain() error {
	held, err := i.hold(i.cache())
	if err != nil {
		return err
	}
	used := i.use()
	release := func() { held.Close(); used.Close() } // closing nil is a no-op
	now, err := inodesOf(held.FS)
	held.CloseFS()
	if err == nil && !slices.Equal(now, i.layers) {
		err = errors.New("hold image: another image is mounted")
	}
	if err != nil {
		release()
		return err
	}
	i.undo.last(release)
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
