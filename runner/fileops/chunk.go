package fileops

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// chunkMost bounds the bytes of a chunk. A chunk is its length, four bytes with the highest first, and its bytes. One
// without bytes ends the stream. Through a buffer passes at most pieceMost at once. What follows the first longPut bytes of a Put
// is in shared memory: see [Shared].
const (
	chunkMost  = 256 << 10
	pieceMost  = 64 << 10
	longPut    = 1 << 20
	lengthSize = 4
)

// Chunks returns a writer of the bytes of a Put or a Get. Close ends them and flushes w.
func Chunks(w *bufio.Writer) io.WriteCloser { return &chunked{w: w} }

type chunked struct {
	w *bufio.Writer

	shared *Shared       // nil: the bytes all go to w
	reply  *bufio.Reader // of the process that takes them from shared
	chunks int           // in shared until now
	left   int           // of them, which the process has not yet taken
}

// errReplied means that the process replied before it had taken all bytes.
var errReplied = errors.New("the process in the sandbox has replied")

// await waits until the process has taken all but most of the chunks in shared.
func (c *chunked) await(most int) error {
	for ; c.left > most; c.left-- {
		if b, err := c.reply.Peek(1); err != nil || b[0] != taken {
			return errReplied
		}
		c.reply.Discard(1)
	}
	return nil
}

// share copies from a reader through the shared memory.
func (c *chunked) share(from io.Reader) (n int64, err error) {
	for {
		if err := c.await(slots - 1); err != nil {
			return n, err
		}
		slot, got, end := c.shared.slot(c.chunks), 0, error(nil)
		for got < pieceMost && end == nil { // some readers have small pieces
			var m int
			m, end = from.Read(slot[got:])
			got += m
		}
		if got > 0 {
			if err := errors.Join(c.length(sharedBit|got), c.w.Flush()); err != nil {
				return n, err
			}
			n += int64(got)
			c.chunks++
			c.left++
		}
		switch {
		case errors.Is(end, io.EOF):
			return n, nil
		case end != nil:
			return n, end
		}
	}
}

func (c *chunked) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), pieceMost)]
		if err = c.length(len(part)); err == nil {
			var m int
			m, err = c.w.Write(part)
			n, b = n+m, b[m:]
		}
	}
	return n, err
}

// ReadFrom reads into the buffer of w, so that a copy needs no other one, and later into the shared memory.
func (c *chunked) ReadFrom(from io.Reader) (n int64, err error) {
	for {
		if c.shared != nil && n >= longPut {
			more, err := c.share(from)
			return n + more, err
		}
		room := c.w.AvailableBuffer()
		if cap(room) < readLeast {
			if err := c.w.Flush(); err != nil {
				return n, err
			}
			room = c.w.AvailableBuffer()
		}
		most := min(cap(room), lengthSize+pieceMost)
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

	shared func() (*Shared, error) // nil: no chunk is in shared memory
	taken  func() error            // tells the caller that such a chunk was taken
	chunks int                     // in shared memory until now
	inside bool                    // the current chunk is there
}

func (u *unchunked) Read(b []byte) (n int, err error) {
	if u.left == 0 && u.err == nil {
		u.err = u.next()
	}
	if u.inside { // only WriteTo takes it
		u.err = errAnswer
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

// WriteTo writes all bytes to w.
func (u *unchunked) WriteTo(w io.Writer) (n int64, err error) {
	for {
		if u.left == 0 && u.err == nil {
			u.err = u.next()
		}
		if errors.Is(u.err, io.EOF) {
			return n, nil
		}
		if u.err != nil {
			return n, u.err
		}
		m, err := u.part(w)
		n += int64(m)
		if u.left -= m; errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		u.err = err
	}
}

// part writes bytes of the current chunk, and all if it is in shared memory.
func (u *unchunked) part(w io.Writer) (n int, err error) {
	if u.inside {
		s, err := u.shared()
		if err != nil {
			return 0, err
		}
		if n, err = w.Write(s.slot(u.chunks)[:u.left]); err == nil {
			err = u.taken()
		}
		u.chunks++
		return n, err
	}
	if _, err := u.r.Peek(1); err != nil {
		return 0, err
	}
	b, _ := u.r.Peek(min(u.left, u.r.Buffered()))
	n, err = w.Write(b)
	u.r.Discard(n)
	return n, err
}

// next reads the length of the next chunk.
func (u *unchunked) next() error {
	var head [lengthSize]byte
	if _, err := io.ReadFull(u.r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if u.inside = n&sharedBit != 0 && u.shared != nil; u.inside {
		n &^= sharedBit
	}
	switch {
	case n == 0:
		return io.EOF
	case n > chunkMost:
		return errAnswer
	}
	u.left = int(n)
	return nil
}

// readMost reads a whole stream into to. A longer one is an error.
func readMost(r *bufio.Reader, to []byte) ([]byte, error) {
	from, n := Unchunked(r), 0
	for {
		m, err := from.Read(to[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return to[:n], nil
		case err != nil:
			return nil, err
		case n == len(to):
			if _, err := from.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				return nil, errAnswer
			}
			return to, nil
		}
	}
}
