package redact

import (
	"bytes"
	"io"
)

// stream is what came and was not given on yet.
//
//	held  ┌─ lead ─┬──────────────┐
//	      └────────┴──────────────┘
//	       of a value that began before, and is blanked
type stream struct {
	values *Values
	held   []byte // as it came: a value may overlap another
	lead   int
}

// pass takes b, and gives what nothing that follows can change; all of it at the end. What
// it gives is the caller's until the next call.
func (s *stream) pass(b []byte, end bool) []byte {
	s.held = append(s.held, b...)
	known := len(s.held)
	if !end {
		known -= s.values.begun(s.held)
	}
	out := bytes.Clone(s.held[:known])
	lead := blank(out, 0, s.lead)
	for _, form := range s.values.forms {
		for at := 0; ; at++ {
			i := bytes.Index(s.held[at:], form)
			if i < 0 || at+i >= known {
				break // what begins later is found when it is given
			}
			at += i
			lead = max(lead, blank(out, at, at+len(form)))
		}
	}
	s.held, s.lead = append(s.held[:0], s.held[known:]...), lead
	return out
}

// blank blanks b[from:to], and says how many bytes of that are behind b's end.
func blank(b []byte, from, to int) (behind int) {
	for i := from; i < min(to, len(b)); i++ {
		b[i] = '*'
	}
	return max(0, to-len(b))
}

// begun is how many bytes at the end of b may be the beginning of a value.
func (v *Values) begun(b []byte) (most int) {
	for _, form := range v.forms {
		end := b[max(0, len(b)-len(form)+1):]
		for len(end) > most {
			i := bytes.IndexByte(end, form[0])
			if i < 0 {
				break
			}
			if end = end[i:]; bytes.HasPrefix(form, end) {
				most = max(most, len(end))
				break
			}
			end = end[1:]
		}
	}
	return most
}

// Writer gives on what is written to it.
type Writer struct {
	stream
	to io.Writer
}

// Writer writes to to, which stays open.
func (v *Values) Writer(to io.Writer) *Writer { return &Writer{stream{values: v}, to} }

func (w *Writer) Write(b []byte) (int, error) {
	if w.values == nil {
		return w.to.Write(b)
	}
	if _, err := w.to.Write(w.pass(b, false)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close writes what was held back. The Writer can be used on, for a new text.
func (w *Writer) Close() error {
	if w.values == nil || len(w.held) == 0 {
		return nil
	}
	_, err := w.to.Write(w.pass(nil, true))
	return err
}

// chunk is of one read, in bytes.
const chunk = 32 << 10

type reader struct {
	stream
	from io.Reader
	buf  []byte
	out  []byte // to be given
	err  error  // when out is empty
}

// Reader reads from from.
func (v *Values) Reader(from io.Reader) io.Reader {
	if v == nil {
		return from
	}
	return &reader{stream: stream{values: v}, from: from, buf: make([]byte, chunk)}
}

func (r *reader) Read(b []byte) (int, error) {
	for len(r.out) == 0 && r.err == nil {
		var n int
		n, r.err = r.from.Read(r.buf)
		r.out = r.pass(r.buf[:n], r.err != nil)
	}
	n := copy(b, r.out)
	r.out = r.out[n:]
	if n == 0 {
		return 0, r.err
	}
	return n, nil
}
