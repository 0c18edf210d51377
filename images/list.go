package images

import (
	"errors"
	"fmt"
	"os"

	"demesne/images/oci"
	"demesne/internal/flock"
)

// Listed is an entry of [Store.List].
type Listed struct {
	*Image
	Shared  int64 // bytes of Size that other images have too
	Dropped int64 // bytes of Size whose blobs were dropped
	InUse   bool
	Err     error // such as [ErrCorrupt]: only names and digests are known
}

// List returns all images, in the order in which they were added.
func (s *Store) List() ([]Listed, error) {
	entries, err := s.readIndex()
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	list := make([]Listed, len(entries))
	users := map[oci.Digest]int{}
	for i, e := range entries {
		img, err := s.load(e)
		if err != nil {
			img = &Image{Names: e.names, Digest: e.Digest, Index: e.index, Pulled: e.pulled}
		}
		list[i] = Listed{Image: img, Err: err, InUse: s.inUse(e.Digest)}
		for d := range img.layerSizes() {
			users[d]++
		}
	}
	for i := range list {
		for d, n := range list[i].layerSizes() {
			if users[d] > 1 {
				list[i].Shared += n
			}
			if s.Dropped(d) != nil {
				list[i].Dropped += n
			}
		}
	}
	return list, nil
}

// layerSizes returns the size of each layer's blob, each blob once.
func (img *Image) layerSizes() map[oci.Digest]int64 {
	m := map[oci.Digest]int64{}
	for _, l := range img.Layers {
		m[l.Digest] = l.Size
	}
	return m
}

func (s files) inUse(d oci.Digest) bool {
	f, err := flock.TryOpen(s.usedPath(d), os.O_RDONLY, flock.Exclusive)
	if err == nil {
		f.Close()
	}
	return errors.Is(err, flock.ErrLocked)
}

// DiffIDs returns the DiffIDs of all images' layers and of all kept steps of builds, which [Client.Sweep] keeps. The DiffIDs of a
// damaged image are unknown and left out.
func (s *Store) DiffIDs() ([]oci.Digest, error) {
	list, err := s.List()
	if err != nil {
		return nil, err
	}
	seen := map[oci.Digest]bool{}
	var ids []oci.Digest
	for _, img := range list {
		if img.Err != nil && !errors.Is(img.Err, ErrCorrupt) {
			return nil, img.Err
		}
		for _, l := range img.Layers {
			if !seen[l.DiffID] {
				ids = append(ids, l.DiffID)
			}
			seen[l.DiffID] = true
		}
	}
	steps, err := s.stepLayers()
	for _, l := range steps {
		if !seen[l.DiffID] {
			ids = append(ids, l.DiffID)
		}
		seen[l.DiffID] = true
	}
	return ids, err
}
