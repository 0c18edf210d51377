package layers

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
)

// A MissingError lists the layers that are not in the cache. They must be unpacked first.
type MissingError struct{ IDs []DiffID }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%d layers are not unpacked, the first is %s", len(e.IDs), e.IDs[0])
}

// Held is a set of layers that no sweep removes before Close, or the death of the process.
type Held struct {
	// FS has an O_PATH descriptor of each layer's files, in the requested order: bottom first. Layers below one
	// that is opaque at its root are held but not in FS, because overlayfs ignores that mark on a root. The Held
	// owns the descriptors.
	FS []*os.File

	locks []dir
}

// Hold locks the layers, bottom first, against removal. If some are missing it holds none, and the error is a
// [*MissingError].
func (c Cache) Hold(ids []DiffID) (*Held, error) {
	if len(ids) == 0 {
		return &Held{}, nil // an image without layers needs no cache
	}
	at, err := c.open()
	if errors.Is(err, unix.ENOENT) {
		return nil, c.missing(ids[0], ids)
	}
	if err != nil {
		return nil, err
	}
	defer at.Close()
	h := &Held{}
	for _, id := range ids {
		err := h.hold(at, id)
		if err == nil {
			continue
		}
		h.Close()
		if errors.Is(err, unix.ENOENT) || id.Validate() != nil {
			return nil, c.missing(id, ids)
		}
		return nil, fmt.Errorf("hold layer %q: %w", id, err)
	}
	return h, nil
}

// missing returns the error for missing layers; opening one of them has failed.
func (c Cache) missing(one DiffID, ids []DiffID) error {
	if missing := c.Missing(ids); missing != nil {
		return &MissingError{IDs: missing}
	}
	return &MissingError{IDs: []DiffID{one}} // published since then
}

func (h *Held) hold(at dir, id DiffID) error {
	name, err := id.encoded()
	if err != nil {
		return err
	}
	tree, err := at.lock(name, flock.Lock, flock.Shared)
	if err != nil {
		return err
	}
	h.locks = append(h.locks, tree)
	fs, err := tree.open(fsDir, unix.O_PATH)
	if err != nil {
		return err
	}
	if isOpaque(fs.Name()) {
		h.CloseFS()
	}
	h.FS = append(h.FS, fs.File)
	return nil
}

// isOpaque reports whether a layer hides all layers below it. The path still leads to the opened directory: the
// layer is locked, and only this program writes to the cache.
func isOpaque(fs string) bool {
	var value [1]byte
	n, err := unix.Lgetxattr(fs, "user.overlay.opaque", value[:])
	return err == nil && n == 1 && value[0] == 'y'
}

// CloseFS closes the descriptors in FS and keeps the layers held, for a caller that has mounted them.
func (h *Held) CloseFS() {
	for _, f := range h.FS {
		f.Close()
	}
	h.FS = nil
}

// Close releases the layers. It may be called twice.
func (h *Held) Close() {
	h.CloseFS()
	for _, l := range h.locks {
		l.Close()
	}
	h.locks = nil
}
