// Package layers is the cache of unpacked image layers: one directory for each layer, by DiffID.
//
//	STORE/trees/KEY            mode 0700: what an image marks setuid is out of other users' reach
//	STORE/trees/KEY/HEX/fs     a layer that is complete; it never changes again
//	STORE/trees/KEY/HEX/size   the bytes it takes, in decimal
//	STORE/trees/KEY/.new-HEX   a layer that a [Writer] fills
//	STORE/trees/KEY/.old-HEX   a layer that a sweep removes
//
// KEY names the id map the layer was unpacked under ([Key]): ownership is on the disk as the host
// sees it, so a tree serves only sandboxes of the same map. A layer is published by one rename, after
// its contents are on the disk, so whoever finds HEX finds all of it, after a kill or a power cut too.
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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	treesDir  = "trees"
	fsDir     = "fs"
	sizeFile  = "size"
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
func (c Cache) Missing(ids []DiffID) []DiffID {
	var missing []DiffID
	seen := map[DiffID]bool{}
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

// All tells whether one of the caches of a store has all of the layers, and what they take on the disk, each
// once: for whoever wants to know that and not under which id map. A cache that the caller may not read is
// not there.
func All(store string, ids []DiffID) (disk int64, ok bool) {
	keys, err := os.ReadDir(filepath.Join(store, treesDir))
	if err != nil {
		return 0, false
	}
	for _, key := range keys {
		c := Open(store, key.Name())
		if len(c.Missing(ids)) > 0 {
			continue
		}
		seen := map[DiffID]bool{}
		for _, id := range ids {
			if n, err := c.size(id); err == nil && !seen[id] {
				disk += n
			}
			seen[id] = true
		}
		return disk, true
	}
	return 0, false
}

// size is what a layer takes on the disk, as its writer counted.
func (c Cache) size(id DiffID) (int64, error) {
	name, err := id.encoded()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(c.Dir(), name, sizeFile))
	if err != nil {
		return 0, fmt.Errorf("read layer size: %w", err)
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read layer size: %w", err)
	}
	return n, nil
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

// MakeDir makes the directory that all caches of a store are in, where it is missing, and returns its
// path.
func MakeDir(store string) (string, error) {
	trees := filepath.Join(store, treesDir)
	if err := os.MkdirAll(trees, 0o755); err != nil {
		return "", fmt.Errorf("make layers: %w", err)
	}
	return trees, nil
}

// create makes what is missing of the directory of the cache, and opens it.
func (c Cache) create() (dir, error) {
	if at, err := c.open(); !errors.Is(err, unix.ENOENT) {
		return at, err
	}
	if _, err := MakeDir(c.store); err != nil {
		return dir{}, err
	}
	if err := os.Mkdir(c.Dir(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return dir{}, fmt.Errorf("make layers: %w", err)
	}
	return c.open()
}
