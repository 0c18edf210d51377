package tarball

import (
	"archive/tar"
	"io"
)

// endMark is how many zero bytes end a stream. The padding before them is shorter than a block of 512.
const endMark = 1024

// A reader reads the entries of a stream. One that ends without the mark was cut: an [io.ErrUnexpectedEOF], where
// archive/tar sees the end between two entries.
type reader struct {
	*tar.Reader
	src *zeros
}

func newReader(r io.Reader) *reader {
	src := &zeros{r: r}
	return &reader{tar.NewReader(src), src}
}

// Next goes to the next entry. All of the one before must have been read.
func (r *reader) Next() (*tar.Header, error) {
	r.src.n = 0
	h, err := r.Reader.Next()
	if err == io.EOF && r.src.n < endMark {
		err = io.ErrUnexpectedEOF
	}
	return h, err
}

// zeros counts the zero bytes that were read last.
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
