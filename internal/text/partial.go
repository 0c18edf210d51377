package text

import (
	"strings"
	"unicode/utf8"
)

// Shorten returns valid UTF-8: s, or of a longer one its first bytes, at most most, and a mark.
func Shorten(s string, most int) string {
	if len(s) > most {
		s = s[:most]
		s = s[:most-Partial([]byte(s))] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Partial returns the length of an incomplete character at the end of b.
func Partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if utf8.RuneStart(b[len(b)-n]) {
			if !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			break
		}
	}
	return 0
}
