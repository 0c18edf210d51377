package unpack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
)

// maxWindow is the memory that a zstd frame may ask for: what `zstd --long=27` makes.
const maxWindow = 128 << 20

// mediaTypes are those of layers. What a blob is compressed with is told by its first bytes: there are
// registries full of layers whose type says otherwise, and the DiffID judges in the end.
var mediaTypes = map[string]bool{
	"application/vnd.oci.image.layer.v1.tar":                       true,
	"application/vnd.oci.image.layer.v1.tar+gzip":                  true,
	"application/vnd.oci.image.layer.v1.tar+zstd":                  true,
	"application/vnd.oci.image.layer.nondistributable.v1.tar":      true,
	"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip": true,
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd": true,
	"application/vnd.docker.image.rootfs.diff.tar":                 true,
	"application/vnd.docker.image.rootfs.diff.tar.gzip":            true,
	"application/vnd.docker.image.rootfs.diff.tar.zstd":            true,
	"application/vnd.docker.image.rootfs.foreign.diff.tar":         true,
	"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip":    true,
	"application/vnd.docker.container.image.rootfs.diff+x-gtar":    true,
}

// A blob is a layer's file in the store, hashed while it is read.
type blob struct {
	ctx   context.Context
	file  *os.File
	layer Layer
	sum   hash.Hash
	read  int64
	err   error // of reading, but io.EOF
	saw   func(read int64)
}

func newBlob(ctx context.Context, f *os.File, l Layer, saw func(int64)) *blob {
	return &blob{ctx: ctx, file: f, layer: l, sum: sha256.New(), saw: saw}
}

func (b *blob) Read(p []byte) (int, error) {
	n, err := 0, b.ctx.Err()
	if err == nil {
		n, err = b.file.Read(p)
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	b.sum.Write(p[:n])
	b.read += int64(n)
	b.saw(b.read)
	return n, err
}

// verify reads what nobody read and compares size and digest.
func (b *blob) verify() error {
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{b}); err != nil {
		return err
	}
	if got := digest.NewDigest(digest.SHA256, b.sum); got != b.layer.Digest || b.read != b.layer.Size {
		return fmt.Errorf("%w: %d bytes of %s, wanted %d bytes", ErrCorrupt, b.read, got, b.layer.Size)
	}
	return nil
}

// decompress returns the archive in b, which may be gzip, zstd or none of them. The decoder
// uses one thread: the cores are for other layers, and for what comes behind it. Its errors are
// [*RefusedError], but those of reading b.
func decompress(b *blob) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(b, chunkSize)
	magic, _ := r.Peek(4) // an error comes again
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b, 8}):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, b.explain(err)
		}
		return &decoder{ReadCloser: &members{Reader: z}, blob: b}, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), skippable(magic):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, b.explain(err)
		}
		return &decoder{ReadCloser: z.IOReadCloser(), blob: b}, nil
	}
	return io.NopCloser(r), nil
}

// skippable tells whether zstd would skip a frame that begins so: some tools put an index there.
func skippable(magic []byte) bool {
	return len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}

// A decoder tells its own errors from those of what it reads.
type decoder struct {
	io.ReadCloser
	blob *blob
}

func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = d.blob.explain(err)
	}
	return n, err
}

// explain returns what reading b met with, or else refuses the layer for err.
func (b *blob) explain(err error) error {
	if b.err != nil {
		return b.err
	}
	return &RefusedError{Reason: BadTar, Err: err}
}

// members is a gzip file that may end in something that is no member: padding, which other readers
// ignore too. It is hashed with the blob.
type members struct {
	*gzip.Reader
	any bool
}

func (m *members) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.any = m.any || n > 0
	if m.any && errors.Is(err, gzip.ErrHeader) {
		err = io.EOF
	}
	return n, err
}
