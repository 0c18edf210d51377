// Package archive reads and writes images as files: OCI layouts and their tars, what `docker save`
// writes, root file systems as tars or directories.
//
//	Open     oci: oci-archive: docker-archive:   as a source that images/pull copies from
//	Import   tar, directory                      an image of one layer
//	Save     an image                            oci-archive or docker-archive
//	Export   an image                            one tar, its layers laid over each other
//
// Files are as hostile as registries. Nothing of an archive is unpacked: members are found by one pass
// over the headers and read in place, and all that comes out of one is verified by whoever reads it.
// A directory is read through os.Root: no link is followed, inside or out, and no name leaves it.
// Memory is bounded by the number of entries, never by their size.
//
// Root file systems lose nothing but sockets and the names of owners: ids, modes, times, hard links,
// user.* attributes and file capabilities stay. Layers are written as they were, and imported ones
// as they come, so that the same files make the same image.
package archive

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// An InvalidError says that files are not what they should be.
type InvalidError struct {
	Path string
	Err  error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("read %q: %v", e.Path, e.Err) }
func (e *InvalidError) Unwrap() error { return e.Err }

func invalid(path, format string, args ...any) error {
	return &InvalidError{path, fmt.Errorf(format, args...)}
}

// temporary returns a file that has no name, in a directory that has room: nothing is left of it,
// whatever happens.
func temporary(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), "temporary"), nil
	}
	f, err := os.CreateTemp(dir, ".archive-*") // a file system without O_TMPFILE
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// contextReader ends when its context does.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
