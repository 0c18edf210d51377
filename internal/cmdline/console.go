package cmdline

import (
	"fmt"
	"io"
	"os"

	"demesne/internal/text"
)

// Console is the caller's side of a program: its streams and its environment.
type Console struct {
	Stdin, Stdout, Stderr *os.File
	Env                   func(string) (string, bool)
}

// OwnConsole returns the console of this process.
func OwnConsole() Console {
	return Console{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.LookupEnv}
}

// Getenv returns the value of a variable, or the empty string.
func (c *Console) Getenv(name string) string {
	v, _ := c.Env(name)
	return v
}

// Report prints an error and its hint, a line each, without control characters. verb may be empty.
func Report(to io.Writer, verb string, err error) {
	line := err.Error()
	if verb != "" {
		line = verb + ": " + line
	}
	fmt.Fprintf(to, "demesne: %s\n", text.SafeLine(line))
	if hint := text.HintOf(err); hint != "" {
		fmt.Fprintf(to, "hint: %s\n", text.SafeLine(hint))
	}
}
