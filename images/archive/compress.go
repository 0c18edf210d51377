package archive

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// A format is how a tar is compressed.
type format int

const (
	plain format = iota
	gzipped
	zstandard
	bzipped
	unknownFormat // one we know and cannot read
)

// mediaTypes are those of a layer in each format that layers may have.
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
	{"\xfd7zXZ\x00", unknownFormat},
}

// maxWindow is the memory that a zstd frame may ask for: what `zstd --long=27` makes.
const maxWindow = 128 << 20

var errFormat = errors.New("compressed with xz: decompress it first")

// sniff tells the format by the first bytes.
func sniff(r *bufio.Reader) format {
	head, _ := r.Peek(6)
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.bytes)) {
			return m.format
		}
	}
	return plain
}

// What an archive may decompress to: denseFree bytes, and denseRatio times its own size. gzip cannot do more than 1000
// times; a root file system has seldom 20. rootfs/unpack has the same bounds for layers.
const (
	denseFree  = 512 << 20
	denseRatio = 256
)

// ErrDense says that an archive has far more in it than its size. Decompressed before, it is taken.
var ErrDense = fmt.Errorf("decompresses to more than %d MiB and %d times its size", denseFree>>20, denseRatio)

// counted counts what was read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// A sparing reader ends with [ErrDense].
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

// decompress returns what is in r, and how it was compressed. It may have an [ErrDense] in it.
func decompress(r io.Reader) (io.ReadCloser, format, error) {
	in := &counted{Reader: r}
	d, f, err := decoder(bufio.NewReaderSize(in, 64<<10))
	if err != nil || f == plain {
		return d, f, err
	}
	return &sparing{ReadCloser: d, in: in}, f, nil
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
	case unknownFormat:
		return nil, f, errFormat
	}
	return io.NopCloser(buffered), f, nil
}
