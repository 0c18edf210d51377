package unpack

import (
	"crypto/sha256"
	"hash"
	"io"
)

const (
	chunkSize = 256 << 10
	// chunks of one layer are under way between its decoder, its hash and its files.
	chunks = 6
)

// A chunk is a piece of an archive, or the error that ended it.
type chunk struct {
	data []byte
	err  error
}

// A pipe decodes an archive, hashes it and is read, each in a goroutine of its own: on two cores
// the hash and half of the decoding cost no time. Its memory is bounded by chunks.
type pipe struct {
	free   chan []byte   // for the decoder
	hashed chan chunk    // for the reader
	done   chan struct{} // closed when the reader is
	ended  chan struct{} // closed when both goroutines have ended

	sum  hash.Hash
	size int64 // of the archive, as far as it was hashed

	current chunk
	rest    []byte
}

// newPipe starts to read r, and no more of it than one chunk beyond what allow, which is given the size until then, allows.
func newPipe(r io.Reader, allow func(size int64) error) *pipe {
	p := &pipe{
		free: make(chan []byte, chunks), hashed: make(chan chunk, chunks),
		done: make(chan struct{}), ended: make(chan struct{}),
		sum: sha256.New(),
	}
	for range chunks {
		p.free <- nil // made when first used: most layers are small
	}
	decoded := make(chan chunk, chunks)
	go p.decode(r, allow, decoded)
	go p.hash(decoded)
	return p
}

func (p *pipe) decode(r io.Reader, allow func(int64) error, decoded chan<- chunk) {
	defer close(decoded)
	for size := int64(0); ; {
		var c chunk
		select {
		case <-p.done:
			return
		case c.data = <-p.free:
		}
		if c.data == nil {
			c.data = make([]byte, chunkSize)
		}
		n, err := fill(r, c.data[:chunkSize])
		c.data, c.err = c.data[:n], err
		size += int64(n)
		if err := allow(size); err != nil {
			c.err = err
		}
		decoded <- c
		if c.err != nil {
			return
		}
	}
}

func (p *pipe) hash(decoded <-chan chunk) {
	defer close(p.ended)
	for c := range decoded {
		p.sum.Write(c.data)
		p.size += int64(len(c.data))
		p.hashed <- c
	}
}

// fill reads until p is full. Unlike io.ReadFull it keeps the reader's own errors apart.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.current.err != nil {
			return 0, p.current.err
		}
		if p.current.data != nil {
			p.free <- p.current.data
		}
		p.current = <-p.hashed
		p.rest = p.current.data
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// close ends both goroutines; what the pipe reads from is the caller's again.
func (p *pipe) close() {
	close(p.done)
	<-p.ended
}
