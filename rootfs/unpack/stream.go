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
	saw   func(read int64)
}

func newBlob(ctx context.Context, f *os.File, l Layer, saw func(int64)) *blob {
	return &blob{ctx: ctx, file: f, layer: l, sum: sha256.New(), saw: saw}
}

func (b *blob) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.file.Read(p)
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

// decompress returns the archive in r, which may be gzip, zstd or none of them. The decoder
// uses one thread: the cores are for other layers, and for what comes behind it.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, chunkSize)
	magic, err := br.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b, 8}):
		z, err := gzip.NewReader(br)
		return &members{Reader: z}, err
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
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
