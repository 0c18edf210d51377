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
