package archive

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// A format is the compression of a tar archive.
type format int

const (
	plain format = iota
	gzipped
	zstandard
	bzipped
	xzipped
)

// mediaTypes maps each compression that a layer may have to its media type.
var mediaTypes = map[format]string{
	plain:     "application/vnd.oci.image.layer.v1.tar",
	gzipped:   "application/vnd.oci.image.layer.v1.tar+gzip",
	zstandard: "application/vnd.oci.image.layer.v1.tar+zstd",
}

var magics = []struct {
	bytes  string
	format format
}{
	{"\x1f\x8b\x08", gzipped},
	{"\x28\xb5\x2f\xfd", zstandard},
	{"BZh", bzipped},
	{"\xfd7zXZ\x00", xzipped},
}

// maxWindow limits the memory that a zstd frame or an xz block may require. It is the window of `zstd --long=27`, and twice the
// window of `xz -9`.
const maxWindow = 128 << 20

// sniff returns the format, judged by the first bytes.
func sniff(r *bufio.Reader) format {
	head, _ := r.Peek(6)
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return m.format
		}
	}
	return plain
}

// An archive may decompress to at most denseFree bytes plus denseRatio times its compressed size. gzip reaches at
// most a ratio of about 1000; root file systems seldom exceed 20. rootfs/unpack has the same limits for layers.
const (
	denseFree  = 512 << 20
	denseRatio = 256
)

// ErrDense reports that an archive decompresses to far more than its size. The limit does not apply to an archive
// that the user decompressed before.
var ErrDense = fmt.Errorf("decompresses to more than %d MiB and %d times its size", denseFree>>20, denseRatio)

// counted counts the bytes read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// A sparing reader returns [ErrDense] when the decompressed size exceeds the limit.
type sparing struct {
	io.ReadCloser
	in  *counted
	out int64
}

func (s *sparing) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if s.out += int64(n); s.out > denseFree+denseRatio*s.in.n {
		return 0, ErrDense
	}
	return n, err
}

// decompress returns a reader of the decompressed content of r, and the format. Reads may return [ErrDense].
func decompress(r io.Reader) (io.ReadCloser, format, error) {
	in := &counted{Reader: r}
	d, f, err := decoder(bufio.NewReaderSize(in, 64<<10))
	if err != nil || f == plain {
		return d, f, err
	}
	return &sparing{ReadCloser: d, in: in}, f, nil
}

// Decompress returns the decompressed content of r; input that is not compressed is returned unchanged. Reads may return
// [ErrDense].
func Decompress(r io.Reader) (io.ReadCloser, error) {
	d, _, err := decompress(r)
	return d, err
}

func decoder(buffered *bufio.Reader) (io.ReadCloser, format, error) {
	f := sniff(buffered)
	switch f {
	case gzipped:
		z, err := gzip.NewReader(buffered)
		return z, f, err
	case zstandard:
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, f, err
		}
		return z.IOReadCloser(), f, nil
	case bzipped:
		return io.NopCloser(bzip2.NewReader(buffered)), f, nil
	case xzipped:
		z, err := xz.NewReader(buffered, maxWindow)
		return io.NopCloser(z), f, err
	}
	return io.NopCloser(buffered), f, nil
}
