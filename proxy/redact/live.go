package redact

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// idleTime is how long a [Values.Live] reader holds bytes back that may begin a value.
const idleTime = 50 * time.Millisecond

// Live returns a reader of from with the values blanked, for output that a person watches. Bytes that may begin a value
// are held back: fewer than the longest value has, and for idleTime at most. What comes after that time is blanked if it
// completes a value. Close ends the reading, once from has returned; it does not close from.
func (v *Values) Live(from io.Reader) io.ReadCloser {
	if v == nil {
		return io.NopCloser(from)
	}
	l := &live{stream: stream{values: v}, chunks: make(chan piece), done: make(chan struct{})}
	go l.read(from)
	return l
}

type live struct {
	stream
	chunks chan piece
	done   chan struct{} // closed by Close
	once   sync.Once
	out    []byte // ready to be returned
	err    error  // returned when out is empty
}

// piece is the result of one read.
type piece struct {
	b   []byte
	err error
}

func (l *live) read(from io.Reader) {
	buf := make([]byte, chunk)
	for {
		n, err := from.Read(buf)
		select {
		case l.chunks <- piece{bytes.Clone(buf[:n]), err}:
		case <-l.done:
			return
		}
		if err != nil {
			return
		}
	}
}

func (l *live) Read(b []byte) (int, error) {
	for len(l.out) == 0 && l.err == nil {
		var idle <-chan time.Time
		if len(l.held) > l.shown {
			idle = time.After(idleTime)
		}
		select {
		case p := <-l.chunks:
			l.err = p.err
			l.out = l.pass(p.b, p.err != nil)
		case <-idle:
			l.out = l.show()
		case <-l.done:
			l.err = io.ErrClosedPipe
		}
	}
	n := copy(b, l.out)
	l.out = l.out[n:]
	if n == 0 {
		return 0, l.err
	}
	return n, nil
}

// Close implements [io.Closer].
func (l *live) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}
