// Package text has functions on the text of messages.
//
//	text.SafeLine(s)         // from an untrusted source: a sandbox, an image, a registry, a model
//	text.SafeJSON(s)         // the same for a JSON text
//	text.Nearest(s, words)   // the word that a mistyped one was meant to be
//	text.Hinted(err, hint)   // an error with a line that the user can type
//	text.ParseSize("512m")   // sizes, as users write and read them
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// SafeLine returns s as a single line that is safe to print on a terminal. It replaces each white space character
// within s by " ", and each unprintable one by "?": control and zero-width characters, those that change the
// writing direction, and bytes that are not UTF-8.
func SafeLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) && r != '\r':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
}

// SafeJSON returns a JSON text with all unprintable characters escaped. They can occur only in strings, where the
// escapes mean the same. The encoder itself escapes only control characters below 0x20.
func SafeJSON(text string) string {
	hidden := func(r rune) bool { return r > '~' && !unicode.IsPrint(r) }
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}
