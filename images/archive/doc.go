// Package archive reads and writes images as files. The formats are OCI layouts and tar archives of
// them, the format of `docker save`, and root file systems as tar archives or directories.
//
//	Open     oci: oci-archive: docker-archive:   a source for images/pull
//	Import   tar, directory                      an image of one layer
//	Save     an image                            oci-archive or docker-archive
//	Export   an image                            one tar with the merged layers
//
// Files are as untrusted as registries. An archive is not unpacked: one pass over the headers finds
// the members, which are then read in place. A compressed archive is first decompressed to a temporary
// file. The reader of a blob verifies its content. A directory is read through os.Root, so no name or
// link leads out of it. Memory is bounded by the number of entries, never by their size.
//
// Import of a directory keeps ids, modes, times in seconds, hard links, user.* attributes and file
// capabilities. Files of the caller become root's. Sockets, names of owners, other attributes and the
// contents of other file systems are dropped. Layers are saved unchanged, but decompressed in Docker's
// format. A tar archive is imported unchanged unless layers do not support its compression, so the
// same files make the same image.
package archive

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An InvalidError reports that a file does not have the expected format.
type InvalidError struct {
	Path string
	Err  error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("read %q: %v", e.Path, e.Err) }
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(path, format string, args ...any) error {
	return &InvalidError{path, fmt.Errorf(format, args...)}
}

// temporary returns a file without a name in dir. The kernel removes it when it is closed.
func temporary(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "temporary"), nil
	}
	f, err := os.CreateTemp(dir, ".archive-*") // fallback for file systems without O_TMPFILE
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
