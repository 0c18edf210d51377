package unpack

import (
	"crypto/sha256"
	"hash"
	"io"
)

const (
	chunkSize = 256 << 10
	// chunks of one layer are in flight between its decoder, its hash and its files.
	chunks = 6
)

// A chunk is a piece of an archive, or the error that ended it.
type chunk struct {
	data []byte
	err  error
}

// A pipe decodes an archive, hashes it and serves it to a reader, each in a goroutine of its own: on two cores the
// hash and half of the decoding cost no time. It holds at most chunks chunks in memory.
type pipe struct {
	free   chan []byte   // for the decoder
	hashed chan chunk    // for the reader
	done   chan struct{} // closed when the reader is done
	ended  chan struct{} // closed when both goroutines have ended

	sum  hash.Hash
	size int64 // of the archive, as far as it was hashed

	current chunk
	rest    []byte
}

// newPipe starts to read r. allow gets the size so far after each chunk; an error from it ends the archive, so at
// most one chunk too many is read.
func newPipe(r io.Reader, allow func(size int64) error) *pipe {
	p := &pipe{
		free: make(chan []byte, chunks), hashed: make(chan chunk, chunks),
		done: make(chan struct{}), ended: make(chan struct{}),
		sum: sha256.New(),
	}
	for range chunks {
		p.free <- nil // allocated on first use: most layers are small
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

// fill reads until p is full. Unlike io.ReadFull it returns the reader's own errors unchanged.
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

// close ends both goroutines; the caller may then use the pipe's source again.
func (p *pipe) close() {
	close(p.done)
	<-p.ended
}
