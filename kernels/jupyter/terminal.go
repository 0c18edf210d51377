package jupyter

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// screen writes text of a sandbox, which arrives in pieces, to a file or to a terminal.
type screen struct {
	to      io.Writer
	raw     bool // not a terminal: the text is written as it is
	colours bool
	pending string // the start of a control sequence or of a character
	last    byte   // written
	painted bool
}

func (s *screen) write(text string) {
	if !s.raw {
		text = s.pending + text
		cut := len(text) - unfinished(text)
		text, s.pending = text[:cut], text[cut:]
		text = forTerminal(text, s.colours)
	}
	if text != "" {
		io.WriteString(s.to, text)
		s.last = text[len(text)-1]
		s.painted = s.painted || strings.Contains(text, "\x1b[")
	}
}

// finish ends a line that has no end, and colours.
func (s *screen) finish() {
	if s.raw {
		return
	}
	rest := forTerminal(s.pending, s.colours)
	s.pending = ""
	if s.painted {
		rest += "\x1b[0m"
	}
	if s.last != 0 && s.last != '\n' {
		rest += "\n"
	}
	io.WriteString(s.to, rest)
	s.last, s.painted = 0, false
}

// unfinished returns the length of the end of s that may continue with the next piece.
func unfinished(s string) int {
	if at := strings.LastIndexByte(s, 0x1b); at >= 0 && begun(s[at:]) {
		return len(s) - at
	}
	for n := 1; n <= min(utf8.UTFMax-1, len(s)); n++ {
		if c := s[len(s)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// forTerminal returns text of a sandbox as it may be written to a terminal. Of all control sequences only those that set
// colours and weight remain, if colours is set; line ends, tabs and carriage returns remain too.
func forTerminal(s string, colours bool) string {
	var b strings.Builder
	for len(s) > 0 {
		if n := sequence(s); n > 0 {
			if colours && isColour(s[:n]) {
				b.WriteString(s[:n])
			}
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteRune(r)
		case unicode.IsPrint(r) && r != utf8.RuneError:
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			b.WriteByte('?')
		}
		s = s[n:]
	}
	return b.String()
}

// sequence returns the length of the control sequence (ECMA-48, CSI) at the start of s, or 0.
func sequence(s string) int {
	if !strings.HasPrefix(s, "\x1b[") {
		return 0
	}
	for i := 2; i < len(s) && i < maxSequence; i++ {
		switch c := s[i]; {
		case c >= 0x40 && c <= 0x7e:
			return i + 1
		case c < 0x20 || c > 0x3f:
			return 0
		}
	}
	return 0
}

// begun reports whether s may be the start of a control sequence: ESC, [, and bytes of its parameters.
func begun(s string) bool {
	body, bracket := strings.CutPrefix(s[1:], "[")
	outside := func(r rune) bool { return r < 0x20 || r > 0x3f }
	return len(s) < maxSequence && (bracket && !strings.ContainsFunc(body, outside) || s == "\x1b")
}

// maxSequence bounds a control sequence, in bytes.
const maxSequence = 64

// isColour reports whether a control sequence is SGR with parameters for colours and weight: 8 hides text.
func isColour(seq string) bool {
	parameters, ok := strings.CutSuffix(seq[2:], "m")
	if !ok || strings.Trim(parameters, "0123456789;") != "" {
		return false
	}
	return !slices.ContainsFunc(strings.Split(parameters, ";"), func(p string) bool { return p == "8" || len(p) > 3 })
}
