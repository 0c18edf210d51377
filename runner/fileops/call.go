package fileops

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// ErrUnsent means that a process ended before it received the request.
var ErrUnsent = errors.New("the process in the sandbox has ended")

// contentAhead is how many bytes of a Get can be peeked at.
const contentAhead = 16 << 10

// Call is the caller's half: it sends a request and reads the answer. put writes the bytes of a Put or Write, and take reads the
// bytes of a Get or Read, or the events of a Watch; both may be nil. again reports whether the process can serve another request. If the error
// is [ErrUnsent], Call has not called put. The process that has received shared is not asked again after it was used. shared may
// be nil.
func Call(w *bufio.Writer, r *bufio.Reader, shared *Shared, q Request, put func(io.Writer) error, take func(*Answer, *bufio.Reader) error) (a *Answer, again bool, err error) {
	if err := q.Check(); err != nil {
		return nil, true, err
	}
	if err := errors.Join(json.NewEncoder(w).Encode(q), w.Flush()); err != nil {
		return nil, false, ErrUnsent
	}
	long := false
	if q.Op == OpPut || q.Op == OpWrite {
		to := &chunked{w: w, shared: shared, reply: r}
		if err := to.send(put); err != nil {
			return nil, false, err
		}
		long = to.chunks > 0
	}
	if a, err = ReadAnswer(r); err != nil {
		var refused *Error
		return nil, errors.As(err, &refused) && q.Op != OpPut, err
	}
	content := r
	if q.Op == OpGet || q.Op == OpRead {
		content = bufio.NewReaderSize(Unchunked(r), contentAhead)
	}
	if take != nil {
		err = take(a, content)
	}
	switch q.Op {
	case OpGet, OpRead:
		_, more := content.Peek(1)
		return a, errors.Is(more, io.EOF), err
	case OpWatch:
		return a, false, err
	}
	return a, err == nil && !long, err
}

// send writes the bytes of a Put. It returns only errors of put: a process that does not take them all says why.
func (c *chunked) send(put func(io.Writer) error) error {
	if put != nil {
		if err := put(c); err != nil {
			if _, gone := c.w.Write(nil); gone != nil || errors.Is(err, errReplied) { // gone is the error of an earlier write
				return nil
			}
			return err
		}
	}
	c.Close()
	c.await(0)
	return nil
}
