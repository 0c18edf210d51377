package session

import (
	"strings"

	"demesne/internal/text"
)

// Last is a writer that keeps the last Most bytes.
type Last struct{ text.Last }

// Tail returns the last most bytes as text.
func (l *Last) Tail(most int) Tail { return tailOf(l.End(most), most, l.Bytes) }

// Tail is the last part of a stream.
type Tail struct {
	Text  string // valid UTF-8
	Bytes int64  // of the whole stream
	Cut   bool   // Text is not the whole stream
	Head  string // the first part of a stream that is longer than RunOptions.Shown; may be empty
	File  string // file of the host with the whole of such a stream; empty: none
}

// tailOf returns the last most bytes of b, the end of a stream of all bytes. It replaces invalid UTF-8 by U+FFFD.
func tailOf(b []byte, most int, all int64) Tail {
	cut := int64(min(len(b), most)) < all
	return Tail{Text: strings.ToValidUTF8(string(text.EndOf(b, most, all)), "\uFFFD"), Bytes: all, Cut: cut}
}
