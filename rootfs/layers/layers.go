// Package layers is the cache of unpacked image layers: one directory for each layer, by DiffID.
//
//	STORE/trees/KEY            mode 0700: what an image marks setuid is out of other users' reach
//	STORE/trees/KEY/HEX/fs     a layer that is complete; it never changes again
//	STORE/trees/KEY/.new-HEX   a layer that a [Writer] fills
//	STORE/trees/KEY/.old-HEX   a layer that a sweep removes
//
// KEY names the id map the layer was unpacked under ([Key]): ownership is on the disk as the host
// sees it, so a tree serves only sandboxes of the same map. A layer is published by one rename after
// its contents, so whoever finds HEX finds all of it. The package does not call fsync: what a power
// cut leaves is the file system's business, what a kill leaves is ours.
//
// Every directory is guarded by flock(2) on itself. A reader holds it shared ([Cache.Hold]), a
// writer or a sweep exclusively, and the lock goes with the process: a directory whose name starts
// with a dot and which nobody locks was left by a killed process, and the next one takes it
// away. Since a directory may be renamed or removed while somebody waits for its lock, each lock
// is checked afterwards: the name must still lead to what was locked.
//
// Below the store nothing is opened through a symbolic link (openat2). A cache has no state of its
// own and is safe for any number of goroutines and processes. Who unpacks and who sweeps
// must be uid 0 of the user namespace that has the map; who holds needs only to read.
package layers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

const (
	treesDir  = "trees"
	fsDir     = "fs"
	newPrefix = ".new-"
	oldPrefix = ".old-"
)

// ErrPresent says that a layer is in the cache already.
var ErrPresent = errors.New("layer is present")

// A Cache is the layers of one store that were unpacked under one id map.
type Cache struct{ store, key string }

// Open returns the cache in the image store at this path. It touches nothing: directories are
// made by the first writer.
func Open(store, key string) Cache { return Cache{store: store, key: key} }

// Dir is where the layers are.
func (c Cache) Dir() string { return filepath.Join(c.store, treesDir, c.key) }

// Missing returns those of the layers that are not in the cache, each once, in their order. An id that
// is no DiffID is missing. A layer that is there may be swept before it is held.
func (c Cache) Missing(ids []digest.Digest) []digest.Digest {
	var missing []digest.Digest
	seen := map[digest.Digest]bool{}
	at, err := c.open()
	if err == nil {
		defer at.Close()
	}
	for _, id := range ids {
		if !seen[id] && (err != nil || !at.has(id)) {
			missing = append(missing, id)
		}
		seen[id] = true
	}
	return missing
}

// open opens the directory of the cache.
func (c Cache) open() (dir, error) {
	if strings.Contains(c.key, "/") || strings.HasPrefix(c.key, ".") || c.key == "" {
		return dir{}, fmt.Errorf("open layers: bad key %q", c.key)
	}
	store, err := os.Open(c.store)
	if err != nil {
		return dir{}, fmt.Errorf("open layers: %w", err)
	}
	defer store.Close()
	return dir{store}.open(treesDir+"/"+c.key, unix.O_RDONLY)
}

// create makes what is missing of the directory of the cache, and opens it.
func (c Cache) create() (dir, error) {
	if at, err := c.open(); !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	if err := os.MkdirAll(filepath.Join(c.store, treesDir), 0o755); err != nil {
		return dir{}, fmt.Errorf("make layers: %w", err)
	}
	if err := os.Mkdir(c.Dir(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return dir{}, fmt.Errorf("make layers: %w", err)
	}
	return c.open()
}

// encoded is the name of a layer's directory.
func encoded(id digest.Digest) (string, error) {
	if id.Validate() != nil || id.Algorithm() != digest.SHA256 {
		return "", fmt.Errorf("read layer id: %q is not a sha256 digest", string(id))
	}
	return id.Encoded(), nil
}
