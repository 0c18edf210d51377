// Package layers manages the cache of unpacked image layers: one directory for each layer, by DiffID.
//
//	STORE/trees/KEY            mode 0700: other users cannot reach the setuid files of images
//	STORE/trees/KEY/HEX/fs     a complete layer; it never changes again
//	STORE/trees/KEY/HEX/size   its size on disk in bytes, in decimal
//	STORE/trees/KEY/.new-HEX   a layer that a [Writer] fills
//	STORE/trees/KEY/.old-HEX   a layer that a sweep removes
//
// KEY names the id map that the layer was unpacked under ([Key]). Ownership on disk is as the host sees it, so a
// tree serves only sandboxes with the same map, and a store has a copy of a layer for each map in use. A layer is published by one rename, after its contents are on disk.
// So if HEX exists it is complete, even after a kill or a power cut.
//
// Every directory is guarded by flock(2) on itself. A reader takes a shared lock ([Cache.Hold]), a writer or a
// sweep an exclusive one, and the kernel releases it when the process dies. An unlocked directory whose name starts
// with a dot was left by a killed process; the next writer or sweep removes it. A directory may be renamed or
// removed while a process waits for its lock. So after each lock the name is checked: it must still lead to the
// locked directory.
//
// Below the store no symbolic link is followed (openat2). A cache has no state of its own and is safe for any
// number of goroutines and processes. Unpacking and sweeping need uid 0 of the user namespace that has the map;
// holding needs only read access.
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

// ErrPresent reports that a layer is in the cache already.
var ErrPresent = errors.New("layer is present")

// A Cache holds the layers of one store that were unpacked under one id map.
type Cache struct{ store, key string }

// Open returns the cache in the image store at this path. It does not access the disk: the first writer makes the
// directories.
func Open(store, key string) Cache { return Cache{store: store, key: key} }

// Dir returns the directory of the layers.
func (c Cache) Dir() string { return filepath.Join(c.store, treesDir, c.key) }

// Missing returns the layers that are not in the cache, each once, in the given order. An invalid id counts as
// missing. A sweep may still remove a present layer before it is held.
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

// All reports whether one of the caches of a store has all of the layers, and the size on disk in bytes of every such
// copy, each layer counted once in it. Use it if the id map does not matter. A cache that the caller may not read counts
// as missing.
func All(store string, ids []DiffID) (disk int64, ok bool) {
	for _, key := range keysOf(store) {
		c := Open(store, key)
		if len(c.Missing(ids)) > 0 {
			continue
		}
		ok = true
		seen := map[DiffID]bool{}
		for _, id := range ids {
			if n, err := c.size(id); err == nil && !seen[id] {
				disk += n
			}
			seen[id] = true
		}
	}
	return disk, ok
}

// keysOf returns the keys of a store's caches. It ignores links and names that are not keys.
func keysOf(store string) (keys []string) {
	list, _ := os.ReadDir(filepath.Join(store, treesDir))
	for _, e := range list {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			keys = append(keys, e.Name())
		}
	}
	return keys
}

// size returns the size of a layer on disk in bytes, as its writer counted it.
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

// MakeDir makes the directory that holds all caches of a store, if it is missing, and returns its path.
func MakeDir(store string) (string, error) {
	trees := filepath.Join(store, treesDir)
	if err := os.MkdirAll(trees, 0o755); err != nil {
		return "", fmt.Errorf("make layers: %w", err)
	}
	return trees, nil
}

// create makes the directory of the cache, with missing parents, and opens it.
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
