package main

import (
	"encoding/base64"
	"sync"
	"unicode/utf8"
)

// tailSize is how much of a stream --json keeps.
const tailSize = 1 << 20

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	b     []byte
	total int64
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.b = append(t.b, p...)
	// Twice the size before anything moves, so that each byte moves once on average.
	if len(t.b) > 2*tailSize {
		t.b = append(t.b[:0], t.b[len(t.b)-tailSize:]...)
	}
}

// captured is a stream in a JSON document.
type captured struct {
	Text      string `json:"text"`             // the last MiB; bytes that are not UTF-8 read U+FFFD
	Base64    string `json:"base64,omitempty"` // the same bytes, if they are not all UTF-8
	Bytes     int64  `json:"bytes"`            // of the whole stream
	Truncated bool   `json:"truncated"`
}

func (t *tail) captured() *captured {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &captured{Bytes: t.total, Truncated: t.total > tailSize}
	b := t.b[max(0, len(t.b)-tailSize):]
	if c.Truncated {
		// A character may have been cut in two.
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	c.Text = string(b)
	if !utf8.Valid(b) {
		c.Base64 = base64.StdEncoding.EncodeToString(b)
	}
	return c
}
