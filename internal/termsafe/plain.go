// Package plain makes lines of text that others had a say in: sandboxes, images, registries, models.
package termsafe

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
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

// JSON is a text in JSON with all escaped in it that is not printed. Only strings can have such, and mean the same. The encoder
// escapes control characters below 0x20, and no others.
func JSON(text string) string {
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
