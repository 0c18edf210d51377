package images

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"demesne/images/oci"
	"demesne/internal/fsutil"
)

// A Copy is a blob of the store as registries have it or are to have it, perhaps compressed. The store keeps the copies of a
// blob in pushed/HEX, until no image has the blob. It may have a compressed copy itself, among its blobs: see package compression.
type Copy struct {
	Form         string     `json:"form,omitempty"` // "" as in the store, or how it was compressed
	Digest       oci.Digest `json:"digest"`
	Size         int64      `json:"size"`
	Repositories []string   `json:"repositories"` // with the registry's name; the latest last
}

// Copies are what a store knows about its blobs in registries. It may be outdated: a registry has the last word.
type Copies struct{ Store *Store }

const (
	pushedDir  = "pushed"
	maxCopies  = 64 << 10
	mostCopies = 8 // forms of a blob, and repositories of a form
)

func (s files) pushedPath(d oci.Digest) string { return s.path(pushedDir + "/" + d.Encoded()) }

// Of returns the copies of a blob.
func (c Copies) Of(d oci.Digest) []Copy { return c.Store.copies(d) }

func (s files) copies(d oci.Digest) []Copy {
	text, err := readAll(s.pushedPath(d), maxCopies)
	if err != nil {
		return nil
	}
	var all []Copy
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(one Copy) bool { return one.Digest == "" || one.Size < 0 || one.Size > oci.MaxBlob })
}

// Put records a copy of a blob.
func (c Copies) Put(ctx context.Context, d oci.Digest, add Copy) error {
	lock, err := c.Store.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	all := c.Of(d)
	for i := range all {
		if all[i].Form != add.Form || all[i].Digest != add.Digest {
			continue
		}
		old := slices.DeleteFunc(all[i].Repositories, func(r string) bool { return slices.Contains(add.Repositories, r) })
		add.Repositories = last(append(old, add.Repositories...))
	}
	all = slices.DeleteFunc(all, func(one Copy) bool { return one.Form == add.Form })
	text, err := json.Marshal(last(append(all, add)))
	if err == nil {
		err = makeDir(c.Store.path(pushedDir), 0o755)
	}
	if err == nil {
		err = fsutil.WriteFile(c.Store.pushedPath(d), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("record copy of a blob: %w", err)
	}
	return nil
}

// last returns the last mostCopies elements.
func last[T any](all []T) []T { return all[max(0, len(all)-mostCopies):] }

// Repositories returns the repositories that have a blob, by digest: those that its images were pulled from, and those
// that it was pushed to.
func (c Copies) Repositories() map[oci.Digest][]string {
	all := map[oci.Digest][]string{}
	entries, _ := c.Store.readIndex()
	for _, e := range entries {
		img, err := c.Store.load(e)
		if err != nil {
			continue
		}
		for _, l := range img.Layers {
			if e.source != "" {
				all[l.Digest] = append(all[l.Digest], e.source)
			}
			for _, one := range c.Of(l.Digest) {
				all[one.Digest] = append(all[one.Digest], one.Repositories...)
			}
		}
	}
	for d := range all {
		all[d] = unique(all[d])
	}
	return all
}

// removeCopies removes the records of blobs that no image has.
func (s files) removeCopies(keep map[oci.Digest]bool) error {
	return s.eachFile(pushedDir, func(name, path string) error {
		if keep[oci.Digest(oci.Algorithm+name)] {
			return nil
		}
		return os.Remove(path)
	})
}
