package images

import (
	"context"
	"io"
	"os"
	"time"

	"demesne/images/oci"
)

// formLife is how long a compressed form is kept after its last use.
const formLife = 7 * 24 * time.Hour

// Compressed keeps r, the compressed form of a layer, with the store's blobs, until gc finds the form unused.
func (c Copies) Compressed(ctx context.Context, layer oci.Digest, form string, r io.Reader) error {
	d, size, err := c.Store.Put(ctx, r, oci.MaxBlob)
	if err == nil {
		err = c.Put(ctx, layer, Copy{Form: form, Digest: d, Size: size})
	}
	return err
}

// Form returns a form of a layer that is known, and reports whether the store has it.
func (c Copies) Form(layer oci.Digest, form string) (one Copy, known, here bool) {
	for _, one := range c.Of(layer) {
		if one.Form == form {
			st, err := os.Stat(c.Store.blobPath(one.Digest))
			here := err == nil && st.Size() == one.Size
			if here {
				now := time.Now()
				_ = os.Chtimes(c.Store.blobPath(one.Digest), now, now) // its last use; best effort, as in Hold
			}
			return one, true, here
		}
	}
	return Copy{}, false, false
}

// Forget removes a compressed form that turned out to be damaged.
func (c Copies) Forget(ctx context.Context, d oci.Digest) error {
	lock, err := c.Store.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return os.Remove(c.Store.blobPath(d))
}

// forms returns the compressed forms that are kept with the blobs in keep: those that were used since.
func (s files) forms(keep map[oci.Digest]bool, since time.Time) (all []oci.Digest, err error) {
	err = s.eachFile(pushedDir, func(name, _ string) error {
		d := oci.Digest(oci.Algorithm + name)
		if !keep[d] {
			return nil
		}
		for _, one := range s.copies(d) {
			if st, err := os.Stat(s.blobPath(one.Digest)); one.Form != "" && err == nil && st.ModTime().After(since) {
				all = append(all, one.Digest)
			}
		}
		return nil
	})
	return all, err
}
