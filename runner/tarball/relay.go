package tarball

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
)

// Relay passes a stream from one untrusted side to another. It passes each entry as [Unpack] would accept it, within
// limits.
type Relay struct {
	Dir     bool // the stream contains a directory
	NoLinks bool // leave symbolic links out: who unpacks the result may follow them

	r     *reader
	first *tar.Header
	left  budget
	did   Report
}

// NewRelay reads the first entry of r. It returns io.EOF if r has no entry.
func NewRelay(r io.Reader, l Limits) (*Relay, error) {
	tr := newReader(r)
	h, err := tr.Next()
	if err == io.EOF {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	return &Relay{Dir: h.Typeflag == tar.TypeDir, r: tr, first: h, left: l.budget()}, nil
}

// Pass writes the stream to w. It passes on files, directories and symbolic links, with their names, modes, times and
// contents. It skips all other entries.
func (y *Relay) Pass(w io.Writer) (Report, error) {
	tw := tar.NewWriter(w)
	h, err := y.first, error(nil)
	for err == nil {
		if err = y.entry(tw, h); err != nil {
			return y.did, fmt.Errorf("relay %q: %w", h.Name, err)
		}
		h, err = y.r.Next()
	}
	if errors.Is(err, io.EOF) {
		return y.did, tw.Close()
	}
	return y.did, fmt.Errorf("relay: %w", err)
}

func (y *Relay) entry(w *tar.Writer, h *tar.Header) error {
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if err := y.left.entry(); err != nil {
		return err
	}
	out := &tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o777, ModTime: h.ModTime, Format: tar.FormatPAX}
	switch {
	case h.Typeflag == tar.TypeDir:
		out.Name += "/"
	case h.Typeflag == tar.TypeReg:
		return y.file(w, out, h)
	case h.Typeflag == tar.TypeSymlink && !y.NoLinks:
		out.Linkname = h.Linkname
	default:
		y.did.leave(name, leftKind(h))
		return nil
	}
	return w.WriteHeader(out)
}

func (y *Relay) file(w *tar.Writer, out, h *tar.Header) error {
	c, err := readContent(h, y.r, &y.left)
	if err != nil {
		return err
	}
	c.describe(out)
	if err := w.WriteHeader(out); err != nil {
		return err
	}
	if err := c.writeExtents(w); err != nil {
		return err
	}
	y.did.Files++
	y.did.Bytes += c.data
	meter := y.left.limits.Meter
	defer meter.file()
	_, err = io.Copy(w, meter.reader(y.r))
	return err
}

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
