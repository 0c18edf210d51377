package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/opencontainers/umoci/oci/layer"
	"golang.org/x/sys/unix"

	"demesne/rootfs/layers"
)

// onDisk tells umoci how to write a layer: with whiteouts as overlayfs reads them when mounted with userxattr.
// umoci maps no ids and runs in non-rootless mode, as the filter has given every header an owner of this user
// namespace.
var onDisk = layer.OverlayfsRootfs{UserXattr: true}

// within runs f in dir, on a thread of its own with its own working directory and umask. Paths below dir are then
// as short as in the archive. This saves a third of the kernel's lookups and leaves all of PATH_MAX to the archive.
//
// Filters of containers refuse unshare(2). The layers of [layers.EnvOneID] then take turns with the process's own.
func within(dir string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			err := unix.Unshare(unix.CLONE_FS)
			if err != nil && layers.OneID() {
				turns.Lock()
				defer turns.Unlock()
			} else if err != nil {
				return fmt.Errorf("unshare directory: %w", err)
			}
			if err := unix.Chdir(dir); err != nil {
				return fmt.Errorf("enter %q: %w", dir, err)
			}
			unix.Umask(0o022)
			return f()
		}()
	}()
	return <-done
}

// turns is held by the layer that has the working directory of the process.
var turns sync.Mutex

// extract makes the files of an archive in the working directory.
func extract(r io.Reader, f *filter) error {
	var (
		archive = tar.NewReader(r)
		umoci   = layer.NewTarExtractor(&layer.UnpackOptions{OnDiskFormat: onDisk})
		data    = &contents{Reader: archive, buf: make([]byte, chunkSize)}
		quick   = newQuick(data)
		room    space
	)
	defer quick.leave()
	for {
		hdr, err := archive.Next()
		if err == io.EOF {
			return quick.leave()
		}
		if err != nil {
			return readError(err)
		}
		sparse := isSparse(hdr)
		v, err := f.check(hdr)
		if err != nil {
			return err
		}
		if v == leave {
			continue
		}
		if !sparse { // holes take no space
			if err := room.take(hdr.Size); err != nil {
				return err
			}
		}
		name := hdr.Name
		if err := unpackEntry(umoci, quick, hdr, data, sparse, &room); err != nil {
			return entryError(name, err)
		}
	}
}

// unpackEntry unpacks an entry in the fastest way that is possible for it.
func unpackEntry(umoci *layer.TarExtractor, quick *quick, hdr *tar.Header, data *contents, sparse bool, room *space) error {
	if !sparse {
		if made, err := quick.make(hdr); made || err != nil {
			return err
		}
	}
	if err := quick.leave(); err != nil {
		return err
	}
	if sparse {
		return unpackSparse(umoci, hdr, data, room)
	}
	return umoci.UnpackEntry(".", hdr, data)
}

// readError attributes an error of the tar reader to the archive, or to reading it.
func readError(err error) error {
	if malformed(err) {
		return &RefusedError{Reason: BadTar, Err: err}
	}
	return fmt.Errorf("read layer: %w", err)
}

func malformed(err error) bool {
	return errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF)
}

// archives lists the errors of system calls that the contents of an archive can cause. The machine causes all
// others.
var archives = []unix.Errno{unix.ENOENT, unix.EEXIST, unix.ENOTDIR, unix.EISDIR, unix.ENOTEMPTY, unix.ELOOP, unix.EPERM,
	unix.EMLINK, unix.ENAMETOOLONG, unix.EINVAL, unix.E2BIG, unix.ERANGE}

func entryError(name string, err error) error {
	var refused *RefusedError
	var errno unix.Errno
	switch {
	case errors.As(err, &refused):
		return refused
	case malformed(err):
		return &RefusedError{Reason: BadTar, Entry: name, Err: err}
	case errors.As(err, &errno) && slices.Contains(archives, errno):
		return &RefusedError{Reason: badEntry, Entry: name, Err: err}
	}
	return fmt.Errorf("unpack %q: %w", name, err)
}

// contents reads the current entry. umoci copies it by WriteTo, in pieces of buf; without WriteTo it would allocate
// two buffers for each file.
type contents struct {
	*tar.Reader
	buf []byte
}

func (c *contents) WriteTo(w io.Writer) (written int64, err error) {
	for {
		n, err := fill(c.Reader, c.buf)
		if n > 0 {
			m, err := w.Write(c.buf[:n])
			written += int64(m)
			if err != nil {
				return written, err
			}
		}
		if err == io.EOF {
			return written, nil
		}
		if err != nil {
			return written, err
		}
	}
}

const (
	// margin is how many bytes stay free on the file system of the store.
	margin = 32 << 20
	// stride is the number of bytes after which the free space is measured again.
	stride = 64 << 20
)

// space reports that a file will not fit, before it is written.
type space struct{ left int64 }

func (s *space) take(size int64) error {
	if s.left -= size; s.left >= 0 {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(".", &fs); err != nil {
		return fmt.Errorf("measure free space: %w", err)
	}
	free := int64(min(fs.Bavail, 1<<40))*fs.Bsize - margin
	if size > free {
		return fmt.Errorf("unpack %d bytes: %w", size, os.NewSyscallError("statfs", unix.ENOSPC))
	}
	s.left = min(free, max(stride, size)) - size
	return nil
}
