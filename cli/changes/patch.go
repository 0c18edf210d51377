package changes

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"demesne/internal/cmdline"
	"demesne/session/cow"
)

// maxPatch bounds the text of diff --patch.
const maxPatch = 16 << 20

// PatchText returns the contents of the edits at or below paths, up to a bound.
func PatchText(c *cow.Set, paths []string, t cmdline.Terminal) (string, error) {
	var b strings.Builder
	all, err := c.Patches(paths, func(e cow.Edit, p *cow.Patch) bool {
		b.WriteString(headText(p, e))
		for _, h := range p.Hunks {
			b.WriteString(hunkText(h, t))
		}
		return b.Len() <= maxPatch
	})
	if err != nil {
		return "", err
	}
	if !all {
		b.WriteString("… and more: name a PATH\n")
	}
	return b.String(), nil
}

// headText returns the lines before the hunks. The first is the line of diff without --patch.
func headText(p *cow.Patch, e cow.Edit) string {
	return List([]cow.Edit{e}, true) + strings.Join(append(p.Head, ""), "\n")
}

// hunkText returns the lines of a hunk for a terminal.
func hunkText(h cow.Hunk, t cmdline.Terminal) string {
	var b strings.Builder
	b.WriteString(t.Yellow(h.Head) + "\n")
	for _, line := range h.Lines {
		line = safeCode(strings.TrimSuffix(line, "\n"))
		switch line[0] {
		case '+':
			line = t.Green(line)
		case '-':
			line = t.Red(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// safeCode returns a line of a file as it is safe to print on a terminal. Control characters, those that are invisible or
// change the writing direction, and bytes that are not UTF-8 are spelled as less spells them.
func safeCode(line string) string {
	var b strings.Builder
	for i, r := range line {
		switch {
		case r == '\t' || unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case r < ' ':
			b.WriteString("^" + string('@'+r))
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(line[i:]); size == 1 {
				fmt.Fprintf(&b, "<%02X>", line[i])
				continue
			}
			fallthrough
		default:
			fmt.Fprintf(&b, "<U+%04X>", r)
		}
	}
	return b.String()
}
