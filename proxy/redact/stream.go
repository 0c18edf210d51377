package redact

import (
	"bytes"
	"io"
	"sort"
)

// stream holds the bytes that were passed in and not yet returned.
//
//	held  ┌─ lead ─┬──────────────┐
//	      └────────┴──────────────┘
//	       end of a value that began in bytes already returned; it is blanked
type stream struct {
	values *Values
	held   []byte // not blanked yet: a value may overlap another
	lead   int
	shown  int // so many of the held bytes were returned early: see show
}

// pass appends b and returns the bytes that later input cannot change, or all bytes at the end. The result is a
// copy.
func (s *stream) pass(b []byte, end bool) []byte {
	s.held = append(s.held, b...)
	known := len(s.held)
	if !end {
		known -= s.values.begun(s.held)
	}
	out, lead := s.blanked(known)
	s.held, s.lead = append(s.held[:0], s.held[known:]...), lead
	early := min(s.shown, known)
	s.shown -= early
	return out[early:]
}

// show returns the bytes that are held back. They stay held, so that the rest of a value that they begin is blanked.
func (s *stream) show() []byte {
	out, _ := s.blanked(len(s.held))
	early := s.shown
	s.shown = len(s.held)
	return out[early:]
}

// blanked returns a copy of the first held bytes without values, and the length of the rest of a value that began there.
func (s *stream) blanked(known int) (out []byte, lead int) {
	out = bytes.Clone(s.held[:known])
	lead = blank(out, 0, s.lead)
	for _, form := range s.values.forms {
		for at := 0; ; at++ {
			i := bytes.Index(s.held[at:], form)
			if i < 0 || at+i >= known {
				break // a value that begins later is found when its start is returned
			}
			at += i
			lead = max(lead, blank(out, at, at+len(form)))
		}
	}
	if s.values.base64 == nil {
		return out, lead
	}
	u := unbreak(s.held)
	if len(u.cuts) == 0 {
		return out, lead
	}
	for _, form := range s.values.base64 {
		for at := 0; ; at++ {
			i := bytes.Index(u.text[at:], form)
			if i < 0 || u.original(at+i) >= known {
				break
			}
			at += i
			lead = max(lead, blank(out, u.original(at), u.original(at+len(form)-1)+1))
		}
	}
	return out, lead
}

// blank blanks b[from:to] and returns how many of those bytes lie beyond b's end.
func blank(b []byte, from, to int) (behind int) {
	for i := from; i < min(to, len(b)); i++ {
		b[i] = '*'
	}
	return max(0, to-len(b))
}

// begun returns how many bytes at the end of b may begin a value.
func (v *Values) begun(b []byte) (most int) {
	most = begun(v.forms, b)
	longest := 0
	for _, form := range v.base64 {
		longest = max(longest, len(form))
	}
	tail := b[max(0, len(b)-3*longest):] // a line has at least one byte, and two at its end
	u := unbreak(tail)
	if n := begun(v.base64, u.text); n > 0 {
		most = max(most, len(tail)-u.original(len(u.text)-n))
	}
	return most
}

func begun(forms [][]byte, b []byte) (most int) {
	for _, form := range forms {
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

// unbroken is a text without its line breaks, as they are in base64 of MIME and PEM. An empty line is not base64: the break
// before it is left out, and its own remains.
type unbroken struct {
	text []byte
	cuts []cut
}

// cut is a place where bytes of the original are left out.
type cut struct {
	at   int // of the byte behind it in the text
	gone int // bytes left out until here
}

func unbreak(b []byte) (u unbroken) {
	start, gone := 0, 0
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			break
		}
		end := from + i
		from = end + 1
		if end > 0 && b[end-1] == '\r' {
			end--
		}
		if end == 0 || b[end-1] == '\n' {
			continue
		}
		u.text = append(u.text, b[start:end]...)
		gone, start = gone+from-end, from
		u.cuts = append(u.cuts, cut{len(u.text), gone})
	}
	if start == 0 { // most often
		u.text = b
	} else {
		u.text = append(u.text, b[start:]...)
	}
	u.text = bytes.TrimSuffix(u.text, []byte("\r")) // the rest of the break may follow
	return u
}

// original returns the place in the original of the byte i of the text.
func (u unbroken) original(i int) int {
	if n := sort.Search(len(u.cuts), func(n int) bool { return u.cuts[n].at > i }); n > 0 {
		i += u.cuts[n-1].gone
	}
	return i
}

// Writer blanks the values in the bytes written to it and forwards them.
type Writer struct {
	stream
	to io.Writer
}

// Writer returns a Writer to to, which Close does not close.
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

// Close writes the bytes held back. The Writer can then be reused for a new text.
func (w *Writer) Close() error {
	if w.values == nil || len(w.held) == 0 {
		return nil
	}
	_, err := w.to.Write(w.pass(nil, true))
	return err
}

// chunk is the size of one read, in bytes.
const chunk = 32 << 10

type reader struct {
	stream
	from io.Reader
	buf  []byte
	out  []byte // ready to be returned
	err  error  // returned when out is empty
}

// Reader returns a reader of from with the values blanked.
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

// Text returns s with every value blanked.
func (v *Values) Text(s string) string {
	if v == nil {
		return s
	}
	return string((&stream{values: v}).pass([]byte(s), true))
}

// FoldedText returns s with every value blanked, ignoring case. It is for names of HTTP headers, as parsers
// change their case.
func (v *Values) FoldedText(s string) string {
	if v == nil {
		return s
	}
	lower := bytes.ToLower([]byte(s))
	if len(lower) != len(s) { // not ASCII: HTTP parsers do not fold it
		return v.Text(s)
	}
	blanked := (&stream{values: &Values{forms: v.folded}}).pass(lower, true)
	out := []byte(s)
	for i, c := range blanked {
		if c == '*' {
			out[i] = '*'
		}
	}
	return string(out)
}
