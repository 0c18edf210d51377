package tarball

import (
	"io"
	"sync/atomic"
)

// A Meter counts what a copy has moved so far. It may be read during the copy. A nil Meter counts nothing.
type Meter struct {
	files atomic.Int64
	bytes atomic.Int64
}

// Moved returns the number of complete files and the bytes of data so far.
func (m *Meter) Moved() (files, bytes int64) { return m.files.Load(), m.bytes.Load() }

func (m *Meter) file() {
	if m != nil {
		m.files.Add(1)
	}
}

// reader returns r, whose data m counts.
func (m *Meter) reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &metered{r, m}
}

type metered struct {
	io.Reader
	m *Meter
}

func (r *metered) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.m.bytes.Add(int64(n))
	return n, err
}
