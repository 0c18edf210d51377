package fileops

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// chunkMost bounds the bytes of a chunk. A chunk is its length, four bytes with the highest first, and its bytes. One
// without bytes ends the stream.
const (
	chunkMost  = 64 << 10
	lengthSize = 4
)

// Chunks returns a writer of the bytes of a Put or a Get. Close ends them and flushes w.
func Chunks(w *bufio.Writer) io.WriteCloser { return &chunked{w} }

type chunked struct{ w *bufio.Writer }

func (c *chunked) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), chunkMost)]
		if err = c.length(len(part)); err == nil {
			var m int
			m, err = c.w.Write(part)
			n, b = n+m, b[m:]
		}
	}
	return n, err
}

// ReadFrom reads into the buffer of w, so that a copy needs no other one.
func (c *chunked) ReadFrom(from io.Reader) (n int64, err error) {
	for {
		room := c.w.AvailableBuffer()
		if cap(room) < readLeast {
			if err := c.w.Flush(); err != nil {
				return n, err
			}
			room = c.w.AvailableBuffer()
		}
		most := min(cap(room), lengthSize+chunkMost)
		got, end := from.Read(room[lengthSize:most])
		if got > 0 {
			binary.BigEndian.PutUint32(room[:lengthSize], uint32(got))
			if _, err := c.w.Write(room[:lengthSize+got]); err != nil {
				return n, err
			}
			n += int64(got)
		}
		switch {
		case errors.Is(end, io.EOF):
			return n, nil
		case end != nil:
			return n, end
		}
	}
}

// readLeast is the least room in the buffer for another chunk.
const readLeast = 512

func (c *chunked) length(n int) error {
	_, err := c.w.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
	return err
}

// Close writes the end, and closes nothing.
func (c *chunked) Close() error { return errors.Join(c.length(0), c.w.Flush()) }

// Unchunked returns a reader of the bytes of a Put or a Get. Only at their end its error is io.EOF.
func Unchunked(r *bufio.Reader) io.Reader { return &unchunked{r: r} }

type unchunked struct {
	r    *bufio.Reader
	left int // of the current chunk
	err  error
}

func (u *unchunked) Read(b []byte) (n int, err error) {
	if u.left == 0 && u.err == nil {
		u.err = u.next()
	}
	if u.err != nil || len(b) == 0 {
		return 0, u.err
	}
	n, err = u.r.Read(b[:min(len(b), u.left)])
	u.left -= n
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	u.err = err
	return n, err
}

// next reads the length of the next chunk.
func (u *unchunked) next() error {
	var head [4]byte
	if _, err := io.ReadFull(u.r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	switch {
	case n == 0:
		return io.EOF
	case n > chunkMost:
		return errAnswer
	}
	u.left = int(n)
	return nil
}
