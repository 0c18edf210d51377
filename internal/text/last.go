package text

import "unicode/utf8"

// Last is a writer that keeps the last Most bytes.
type Last struct {
	Most  int
	Bytes int64 // written in total

	b []byte // at most 2*Most bytes
}

// Write lets b grow to twice the size before it moves anything, so that each byte moves once on average.
func (l *Last) Write(p []byte) (int, error) {
	l.Bytes += int64(len(p))
	l.b = append(l.b, p...)
	if len(l.b) > 2*l.Most {
		l.b = append(l.b[:0], l.b[len(l.b)-l.Most:]...)
	}
	return len(p), nil
}

// End returns the last most bytes, without the rest of a character that was cut.
func (l *Last) End(most int) []byte { return EndOf(l.b, most, l.Bytes) }

// EndOf returns the last most bytes of b, which is the end of a stream of all bytes. It drops the rest of a character
// that was cut.
func EndOf(b []byte, most int, all int64) []byte {
	b = b[max(0, len(b)-most):]
	if int64(len(b)) < all {
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	return b
}
