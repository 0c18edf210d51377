// Package plain makes lines of text that others had a say in: sandboxes, images, registries, models.
package plain

import (
	"strings"
	"unicode"
)

// Line is s as one line that a terminal shows for what it is: white space within it reads " ", and whatever is not printed, control
// characters, those that change the direction of writing, those that have no width, bytes that are not UTF-8, reads "?".
func Line(s string) string {
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
