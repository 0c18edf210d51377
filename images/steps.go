package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// A StepResult is the result of a step of a build. The store keeps it under the step's key, in steps/HEX, with the blob and
// the unpacked files of the layer. Its mtime is the time of its last use.
type StepResult struct {
	Layer   *oci.Layer `json:"layer,omitempty"` // nil: the step changed no file
	Created time.Time  `json:"created"`
	// Images are the names of the images for which the result is kept: see [Steps.Claim]. Without one it is kept until
	// [Client.DropSteps].
	Images []string `json:"images,omitempty"`

	// Of a file from the network, in place of Layer: its digest, and the server's marks of its version.
	Content  oci.Digest `json:"content,omitempty"`
	ETag     string     `json:"etag,omitempty"`
	Modified string     `json:"modified,omitempty"`
}

// Steps are the results that a store keeps.
type Steps struct{ Store *Store }

const (
	stepsDir = "steps"
	maxStep  = 4 << 10
)

func (s files) stepPath(key oci.Digest) string { return s.path(stepsDir + "/" + key.Encoded()) }

// Put keeps the result of a step. The store has the layer's blob, from [Store.Put].
func (t Steps) Put(key oci.Digest, r StepResult) error {
	s := t.Store
	text, err := json.Marshal(r)
	if err == nil {
		err = os.MkdirAll(s.path(stepsDir), 0o755)
	}
	if err == nil {
		err = fsutil.WriteFile(s.stepPath(key), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keep step of a build: %w", err)
	}
	return nil
}

// Get returns the result kept under key. It keeps the layer's blob from removal until [Store.Close]. ok is false if there
// is no result, or if it is damaged or its blob is missing: the step then has to be executed.
func (t Steps) Get(ctx context.Context, key oci.Digest) (r StepResult, ok bool, err error) {
	s := t.Store
	r, err = s.readStep(s.stepPath(key))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt):
		return r, false, nil
	case err != nil:
		return r, false, fmt.Errorf("read step of a build: %w", err)
	}
	if r.Layer != nil {
		err = s.pin(ctx, r.Layer.Digest, r.Layer.Size)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	now := time.Now()
	_ = os.Chtimes(s.stepPath(key), now, now) // best effort, as in Hold
	return r, err == nil, err
}

// maxClaims bounds the images of a result.
const maxClaims = 8

// Claim keeps a result for one more image. A result that is kept for no image stays as it is.
func (t Steps) Claim(ctx context.Context, key oci.Digest, image string) error {
	lock, err := t.Store.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	r, err := t.Store.readStep(t.Store.stepPath(key))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrCorrupt): // another process removed it
		return nil
	case err != nil:
		return fmt.Errorf("read step of a build: %w", err)
	case len(r.Images) == 0 || slices.Contains(r.Images, image):
		return nil
	}
	r.Images = append(r.Images, image)
	r.Images = r.Images[max(0, len(r.Images)-maxClaims):]
	return t.Put(key, r)
}

// dropOf forgets the results that are kept only for one image. The caller has the lock.
func (t Steps) dropOf(image string) error {
	s := t.Store
	return s.eachFile(stepsDir, func(name, path string) error {
		r, err := s.readStep(path)
		if err != nil || !slices.Contains(r.Images, image) {
			return nil // damaged ones are removed with the old ones
		}
		if r.Images = without(r.Images, image); len(r.Images) == 0 {
			return os.Remove(path)
		}
		return t.Put(oci.Digest(oci.Algorithm+name), r)
	})
}

// Discard removes the name of an image that a build made or was to make, as [Store.Remove] does, and the results of steps
// that are kept only for it. It also removes the layers that such a build left without an image.
func (t Steps) Discard(ctx context.Context, ref imageref.Ref) error {
	s := t.Store
	freed := &Freed{}
	err := s.update(ctx, func(entries []entry) ([]entry, bool, error) {
		i, err := find(entries, ref)
		if err != nil {
			return nil, false, err
		}
		if i >= 0 {
			if left := without(entries[i].names, ref.Full); len(left) > 0 {
				entries[i].names = left
				err = s.writeIndex(entries)
			} else {
				d := entries[i].Digest
				entries, err = s.drop(entries, func(c entry) bool { return c.Digest == d }, false, freed)
				if err == nil && len(freed.Images) == 0 {
					err = ErrInUse
				}
			}
		}
		if err == nil {
			err = t.dropOf(ref.Full)
		}
		if err != nil {
			return nil, false, err
		}
		return nil, false, s.removeBlobs(entries, time.Time{}, freed)
	})
	if err != nil {
		return fmt.Errorf("discard image %q: %w", ref, err)
	}
	return nil
}

func (s files) readStep(path string) (r StepResult, err error) {
	b, err := readAll(path, maxStep)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil || r.Layer != nil && (r.Layer.Digest == "" || r.Layer.DiffID == "") {
		return r, ErrCorrupt
	}
	return r, nil
}

// DropSteps forgets the results of builds and removes the caches that were not used since before, and all damaged results.
// Garbage collection then removes their layers. left lists the caches that only the ids of another id map can remove.
func (c *Client) DropSteps(ctx context.Context, before time.Time) (left []string, err error) {
	s := c.Store
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	err = s.eachFile(stepsDir, func(_, path string) error {
		st, err := os.Lstat(path)
		if err != nil {
			return nil // another process removed it
		}
		if _, err := s.readStep(path); err == nil && st.ModTime().After(before) {
			return nil
		}
		return os.Remove(path)
	})
	left, cerr := c.dropCaches(ctx, before)
	return left, errors.Join(err, cerr)
}

const (
	cachesDir   = "caches"
	cacheDigits = 16 // bytes of a digest in a name
	lockExt     = ".lock"
)

// CacheDir returns the directory of a cache that RUN steps share, and locks it until unlock is called. sharing is the one
// of RUN --mount: with "locked" no other step uses the directory meanwhile, and with "private" another step at the same
// time gets a directory of its own.
func CacheDir(ctx context.Context, s *Store, id, sharing string) (dir string, unlock func(), err error) {
	if err := os.MkdirAll(s.path(cachesDir), 0o755); err != nil {
		return "", nil, fmt.Errorf("make cache: %w", err)
	}
	var lock *os.File
	for n := 0; ; n++ {
		dir = s.cachePath(id, n)
		lock, err = lockCache(ctx, dir+lockExt, sharing)
		if !errors.Is(err, flock.ErrLocked) {
			break
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("lock cache: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		lock.Close()
		return "", nil, fmt.Errorf("make cache: %w", err)
	}
	now := time.Now()
	_ = os.Chtimes(dir+lockExt, now, now) // its last use; best effort, as in Hold
	return dir, func() { lock.Close() }, nil
}

// cachePath returns the nth directory for a cache. Only private caches have more than one.
func (s files) cachePath(id string, n int) string {
	if n > 0 {
		id += fmt.Sprintf("\x00%d", n)
	}
	sum := sha256.Sum256([]byte(id))
	return s.path(cachesDir + "/" + hex.EncodeToString(sum[:cacheDigits]))
}

// lockCache returns flock.ErrLocked for a private cache that is in use. It waits for other kinds.
func lockCache(ctx context.Context, path, sharing string) (*os.File, error) {
	const how = os.O_RDWR | os.O_CREATE
	switch sharing {
	case "private":
		return flock.TryOpen(path, how, flock.Exclusive)
	case "locked":
		return flock.Open(ctx, path, how, flock.Exclusive)
	}
	return flock.Open(ctx, path, how, flock.Shared)
}

// dropCaches removes the caches that no step used since before. It keeps those in use, and those in left.
func (c *Client) dropCaches(ctx context.Context, before time.Time) (left []string, err error) {
	err = c.Store.eachFile(cachesDir, func(_, path string) error {
		dir, isLock := strings.CutSuffix(path, lockExt)
		st, err := os.Lstat(path)
		if err != nil || !isLock || st.ModTime().After(before) {
			return nil
		}
		lock, err := flock.TryOpen(path, os.O_RDWR, flock.Exclusive)
		if errors.Is(err, flock.ErrLocked) || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock cache: %w", err)
		}
		defer lock.Close()
		err = os.RemoveAll(dir)
		if errors.Is(err, fs.ErrPermission) { // files of subordinate ids
			var stays bool
			if stays, err = c.removeAs(ctx, dir); stays {
				left = append(left, dir)
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("remove cache: %w", err)
		}
		return os.Remove(path)
	})
	return left, err
}

// removeAs removes a cache as the ids of the sandboxes. stays reports files of other ids.
func (c *Client) removeAs(ctx context.Context, dir string) (stays bool, err error) {
	lines := make(chan string, 1)
	lines <- filepath.Base(dir)
	close(lines)
	result, err := c.run(ctx, job{args: []string{"remove-cache", "--store", c.Store.Dir()}, enter: true, lines: lines})
	return len(result.Left) > 0, err
}

// RemoveCache removes a cache of builds, which nothing uses. The caller has the ids of its files.
func (t Steps) RemoveCache(name string) error {
	if b, err := hex.DecodeString(name); err != nil || len(b) != cacheDigits {
		return fmt.Errorf("cache %.100q: not a valid name", name)
	}
	return os.RemoveAll(t.Store.path(cachesDir + "/" + name))
}

// stepLayers returns the layers of all results.
func (s files) stepLayers() (all []oci.Layer, err error) {
	err = s.eachFile(stepsDir, func(_, path string) error {
		if r, err := s.readStep(path); err == nil && r.Layer != nil {
			all = append(all, *r.Layer)
		}
		return nil
	})
	return all, err
}
