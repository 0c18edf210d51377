package main

import (
	"encoding/base64"
	"strings"
	"sync"
	"unicode/utf8"

	"demesne/proxy/redact"
)

// tailSize is how many bytes of a stream --json keeps.
const tailSize = 1 << 20

// tail keeps the end of a stream.
type tail struct {
	mu     sync.Mutex
	hidden *redact.Writer // writes to lastBytes; nil: no redaction
	lastBytes
}

// lastBytes is the content of a tail; tail.mu protects it.
type lastBytes struct {
	b     []byte
	total int64
}

// hide redacts values in later writes.
func (t *tail) hide(values *redact.Values) { t.hidden = values.Writer(&t.lastBytes) }

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hidden != nil {
		t.hidden.Write(p)
		return
	}
	t.Write(p)
}

func (t *lastBytes) Write(p []byte) (int, error) {
	t.total += int64(len(p))
	t.b = append(t.b, p...)
	// Let it grow to twice the size before moving anything, so that each byte moves once on average.
	if len(t.b) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
	return len(p), nil
}

// text returns the kept bytes as text, with U+FFFD for invalid UTF-8. If there is any, exact is the same bytes
// in base64.
func (t *tail) text() (text, exact string, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hidden != nil {
		t.hidden.Close()
	}
	b := t.b[max(0, len(t.b)-tailSize):]
	if t.total > tailSize {
		// Skip the rest of a character that was cut in two.
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	if !utf8.Valid(b) {
		exact = base64.StdEncoding.EncodeToString(b)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), exact, t.total
}
