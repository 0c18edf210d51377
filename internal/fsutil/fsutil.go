// Package fsutil has file operations that the standard library lacks: replacing a file durably, walking and removing
// trees that an untrusted program wrote, and operations on a directory's descriptor and a name. None of them follows
// a link at the name it is given.
package fsutil

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Exists reports whether path exists and is accessible. A link exists even if its target does not.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// WriteFile replaces a file atomically. A reader sees the old content or the new, even after a power failure.
func WriteFile(path string, b []byte, mode fs.FileMode) (err error) {
	dir, name := filepath.Split(path)
	tmp, err := os.CreateTemp(filepath.Clean(dir), "."+name+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Clean(dir))
}

// SyncDir makes renames and removals in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
