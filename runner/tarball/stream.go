package tarball

import (
	"archive/tar"
	"io"
)

// endMark is the number of zero bytes that end a stream. The padding before them is shorter than a block of 512
// bytes.
const endMark = 1024

// A reader reads the entries of a stream. For a stream that ends without the mark it returns [io.ErrUnexpectedEOF],
// because the stream was truncated. archive/tar treats any end between two entries as io.EOF.
type reader struct {
	*tar.Reader
	src *zeros
}

func newReader(r io.Reader) *reader {
	src := &zeros{r: r}
	return &reader{tar.NewReader(src), src}
}

// Next returns the next entry. The previous entry must have been read completely.
func (r *reader) Next() (*tar.Header, error) {
	r.src.n = 0
	h, err := r.Reader.Next()
	if err == io.EOF && r.src.n < endMark {
		err = io.ErrUnexpectedEOF
	}
	return h, err
}

// zeros counts the zero bytes at the end of the data read so far.
type zeros struct {
	r io.Reader
	n int
}

func (z *zeros) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	i := n
	for i > 0 && p[i-1] == 0 {
		i--
	}
	if i > 0 {
		z.n = 0
	}
	z.n += n - i
	return n, err
}
