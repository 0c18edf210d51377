package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"demesne/images/oci"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// Damage is one defect of a store.
type Damage struct {
	Digest oci.Digest // digest of the blob; "" for index.json
	Names  []string   // names of the images that need it
	Made   []string   // the part of Names that was made here, so that no pull fetches them
	Why    error
}

// Verify reads every blob, compares it with its digest, and checks that every blob that an image
// needs exists, unless it was dropped.
func (s *Store) Verify(ctx context.Context) ([]Damage, error) {
	entries, err := s.readIndex()
	if errors.Is(err, ErrCorrupt) {
		return []Damage{{Why: err}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("verify store: %w", err)
	}
	v := verifier{s: s, names: map[oci.Digest][]string{}, made: map[string]bool{}, sizes: map[oci.Digest]int64{}}
	for _, e := range entries {
		v.image(e)
	}
	if err := v.blobs(ctx); err != nil {
		return nil, fmt.Errorf("verify store: %w", err)
	}
	return v.damage, nil
}

// A verifier collects the damage of one store.
type verifier struct {
	s     *Store
	names map[oci.Digest][]string // names of the images that need a blob
	made  map[string]bool         // names of images that were made here
	sizes map[oci.Digest]int64    // size of a blob according to the manifests

	mu     sync.Mutex
	damage []Damage
}

func (v *verifier) report(d oci.Digest, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var made []string
	for _, name := range v.names[d] {
		if v.made[name] {
			made = append(made, name)
		}
	}
	v.damage = append(v.damage, Damage{d, v.names[d], made, why})
}

// image records the blobs that an image needs. It reports a manifest or configuration that does not
// parse; blobs checks the content of all blobs later.
func (v *verifier) image(e entry) {
	for _, name := range e.names {
		v.made[name] = e.pulled.IsZero()
	}
	v.need(e.Descriptor, e.names)
	raw, err := v.s.readBlob(e.Descriptor)
	if err != nil {
		return
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		v.report(e.Digest, err)
		return
	}
	for _, b := range m.Blobs() {
		v.need(b, e.names)
	}
	if raw, err = v.s.readBlob(m.Config); err != nil {
		return
	}
	if _, err := oci.ParseConfig(raw, len(m.Layers)); err != nil {
		v.report(m.Config.Digest, err)
	}
}

func (v *verifier) need(d oci.Descriptor, names []string) {
	v.names[d.Digest] = unique(append(v.names[d.Digest], names...))
	v.sizes[d.Digest] = d.Size
}

// blobs checks the blobs that exist and then reports the missing ones.
func (v *verifier) blobs(ctx context.Context) error {
	there := map[oci.Digest]bool{}
	work := make(chan oci.Digest)
	var wg sync.WaitGroup
	for range 2 { // so that one reads while the other hashes
		wg.Go(func() {
			for d := range work {
				if err := v.s.checkBlob(ctx, d, v.size(d)); err != nil && ctx.Err() == nil {
					v.report(d, err)
				}
			}
		})
	}
	err := v.s.eachFile("blobs/sha256", func(name, _ string) error {
		d, err := oci.ParseDigest(oci.Algorithm + name)
		if err != nil {
			return nil // not a blob
		}
		there[d] = true
		work <- d
		return ctx.Err()
	})
	close(work)
	wg.Wait()
	for d := range v.sizes {
		if !there[d] && v.s.Dropped(d) == nil {
			v.report(d, errors.New("it is missing"))
		}
	}
	return errors.Join(err, ctx.Err())
}

func (v *verifier) size(d oci.Digest) int64 {
	if n, ok := v.sizes[d]; ok {
		return n
	}
	return -1
}

// checkBlob reads a whole blob. A size of -1 matches any size.
func (s *Store) checkBlob(ctx context.Context, d oci.Digest, size int64) error {
	f, err := os.Open(s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // garbage-collected since it was listed
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return compare(ctx, f, d, size)
}

func compare(ctx context.Context, f *os.File, d oci.Digest, size int64) error {
	h := sha256.New()
	n, err := io.CopyBuffer(h, fsutil.ContextReader(ctx, f), make([]byte, 256<<10))
	switch {
	case err != nil:
		return err
	case size >= 0 && n != size:
		return fmt.Errorf("%d bytes, not %d", n, size)
	case oci.DigestFrom(h.Sum(nil)) != d:
		return errors.New("its content does not match its digest")
	}
	return nil
}

// Repair removes the content that Verify found, if it is still damaged, so that a pull fetches it again. It
// removes damaged blobs, and renames an unreadable index to index.json.damaged. With the index
// intact the images keep their names, and [Client.Ensure] pulls their missing blobs.
func (s *Store) Repair(ctx context.Context, damage []Damage) error {
	var errs []error
	for _, d := range damage {
		if d.Digest == "" {
			errs = append(errs, s.resetIndex(ctx))
			continue
		}
		errs = append(errs, s.removeBad(ctx, d.Digest))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("repair store: %w", err)
	}
	return nil
}

// removeBad removes a blob if its content does not match its name. It does not remove a blob that
// replaced it meanwhile.
func (s *Store) removeBad(ctx context.Context, d oci.Digest) error {
	path := s.blobPath(d)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if compare(ctx, f, d, -1) == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if !flock.Leads(path, f) {
		return nil
	}
	return os.Remove(path)
}

// resetIndex writes an empty index if the existing one cannot be read.
func (s *Store) resetIndex(ctx context.Context) error {
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := s.readIndex(); !errors.Is(err, ErrCorrupt) {
		return err
	}
	if err := os.Rename(s.path(indexFile), s.path(indexFile+".damaged")); err != nil {
		return err
	}
	return s.writeIndex(nil)
}
