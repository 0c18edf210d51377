package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// Terminal tells what can be printed on a file besides text. The zero value is that of a pipe or a file.
type Terminal struct {
	Redraw bool // a line can be erased and printed again
	Color  bool
}

// TerminalOf examines f. TERM=dumb names a terminal without control sequences, and a NO_COLOR that is not empty asks
// for none of those that set colours (no-color.org).
func TerminalOf(f *os.File, env func(string) (string, bool)) Terminal {
	if term, _ := env("TERM"); term == "dumb" || !isTerminal(f) {
		return Terminal{}
	}
	no, _ := env("NO_COLOR")
	return Terminal{Redraw: true, Color: no == ""}
}

func isTerminal(f *os.File) (is bool) {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		is = err == nil
	})
	return is && err == nil
}

// Color is a foreground colour: a parameter of the control sequence SGR.
type Color string

// The colours of a traffic light.
const (
	Green  Color = "32"
	Yellow Color = "33"
	Red    Color = "31"
)

// Paint returns text in a colour, or as it is if the terminal has none.
func (t Terminal) Paint(c Color, text string) string {
	if !t.Color || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
