package cmdline

import (
	"os"

	"golang.org/x/sys/unix"
)

// Terminal tells what can be printed on a file in addition to text. The zero value describes a pipe or a file.
type Terminal struct {
	Redraw bool // a line can be erased and printed again
	Color  bool

	columns int // 0: unknown
}

// The width of help, in characters: where the terminal's is unknown, and its bounds. Longer lines are hard to read.
const (
	stdWidth   = 80
	leastWidth = 40
	mostWidth  = 100
)

// Width returns the width of help on the terminal.
func (t Terminal) Width() int {
	if t.columns == 0 {
		return stdWidth
	}
	return min(max(t.columns, leastWidth), mostWidth)
}

// TerminalOf examines f. TERM=dumb names a terminal without control sequences, and a NO_COLOR that is not empty asks
// for none of those that set colours (no-color.org).
func TerminalOf(f *os.File, env func(string) (string, bool)) Terminal {
	is, columns := isTerminal(f)
	if term, _ := env("TERM"); term == "dumb" || !is {
		return Terminal{columns: columns}
	}
	no, _ := env("NO_COLOR")
	return Terminal{Redraw: true, Color: no == "", columns: columns}
}

func isTerminal(f *os.File) (is bool, columns int) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false, 0
	}
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = err == nil
		if size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ); err == nil {
			columns = int(size.Col)
		}
	})
	return is && err == nil, columns
}

// Green returns text in green. Each colour returns text unchanged if the terminal has no colours.
func (t Terminal) Green(text string) string { return t.paint("32", text) }

// Yellow returns text in yellow.
func (t Terminal) Yellow(text string) string { return t.paint("33", text) }

// Red returns text in red.
func (t Terminal) Red(text string) string { return t.paint("31", text) }

// paint returns text in a colour: a parameter of the control sequence SGR.
func (t Terminal) paint(colour, text string) string {
	if !t.Color {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
