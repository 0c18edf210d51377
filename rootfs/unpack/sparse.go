package unpack

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/umoci/oci/layer"
	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// isSparse reports whether an entry has holes: in GNU's old format or in PAX records.
func isSparse(hdr *tar.Header) bool {
	return hdr.Typeflag == tar.TypeGNUSparse || slices.ContainsFunc(slices.Collect(maps.Keys(hdr.PAXRecords)),
		func(key string) bool { return strings.HasPrefix(key, "GNU.sparse.") })
}

// unpackSparse makes a file and leaves out zero blocks. umoci would fill the holes, so it only makes the empty
// file. unpackSparse then writes the data and sets the metadata again.
func unpackSparse(umoci *layer.TarExtractor, hdr *tar.Header, data *contents, room *space) error {
	size := hdr.Size
	hdr.Size = 0
	if err := umoci.UnpackEntry(".", hdr, bytes.NewReader(nil)); err != nil {
		return err
	}
	fd, err := fsutil.Openat2(unix.AT_FDCWD, hdr.Name, &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT,
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := writeHoles(fd, data, size, room); err != nil {
		return err
	}
	return restore(fd, hdr)
}

const block = 4096

// writeHoles writes the blocks of r that are not zero.
func writeHoles(fd int, r *contents, size int64, room *space) error {
	zero := make([]byte, block)
	for at := int64(0); at < size; {
		n, err := fill(r.Reader, r.buf)
		if err != nil && err != io.EOF {
			return err
		}
		if n == 0 {
			return io.ErrUnexpectedEOF
		}
		for piece := range slices.Chunk(r.buf[:n], block) {
			if bytes.Equal(piece, zero[:len(piece)]) {
				at += int64(len(piece))
				continue
			}
			if err := room.take(int64(len(piece))); err != nil {
				return err
			}
			for len(piece) > 0 { // a full disk may accept only a part
				n, err := unix.Pwrite(fd, piece, at)
				if err != nil {
					return err
				}
				piece, at = piece[n:], at+int64(n)
			}
		}
	}
	return unix.Ftruncate(fd, size)
}

// restore sets the attributes again that writing to a file cleared.
func restore(fd int, hdr *tar.Header) error {
	if caps, ok := hdr.Xattrs["security.capability"]; ok {
		if err := unix.Fsetxattr(fd, "security.capability", []byte(caps), 0); err != nil && err != unix.EPERM {
			return err
		}
	}
	if err := unix.Fchmod(fd, uint32(hdr.Mode)); err != nil {
		return err
	}
	return setTimes(fd, timesOf(hdr))
}
