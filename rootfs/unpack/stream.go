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

// maxWindow is the window, in bytes of memory, that a zstd frame may ask for: as `zstd --long=27` makes.
const maxWindow = 128 << 20

// mediaTypes lists the media types of layers. The first bytes of a blob decide about its compression: registries have many
// layers of another compression than their type says, and the DiffID is checked in the end.
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
	err   error // of reading, except io.EOF
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

// verify reads the rest of the blob and compares its size and digest.
func (b *blob) verify() error {
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{b}); err != nil {
		return err
	}
	if got := digest.NewDigest(digest.SHA256, b.sum); got != b.layer.Digest || b.read != b.layer.Size {
		return fmt.Errorf("%w: %d bytes of %s, wanted %d bytes", ErrCorrupt, b.read, got, b.layer.Size)
	}
	return nil
}

// decompress returns the archive in b, which may be gzip, zstd or uncompressed. The decoder uses one thread, to
// leave the cores to other layers and to the later stages. Its errors are [*RefusedError], except errors from reading b.
func decompress(b *blob) (io.ReadCloser, error) {
	r := bufio.NewReaderSize(b, chunkSize)
	magic, _ := r.Peek(4) // the next read returns the error again
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

// skippable reports whether magic begins a frame that zstd skips: some tools put an index there.
func skippable(magic []byte) bool {
	return len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18})
}

// A decoder separates its own errors from errors in reading the blob.
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

// explain returns the error of reading b if there was one, and otherwise a refusal of the layer for err.
func (b *blob) explain(err error) error {
	if b.err != nil {
		return b.err
	}
	return &RefusedError{Reason: BadTar, Err: err}
}

// members is a gzip file that may end in data that is not a member. That is padding, which other readers ignore
// too. The padding is hashed with the blob.
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
