package cli

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// console is the caller's side of the program: its streams and its environment. Answers go to stdout, and messages of
// demesne itself to stderr.
type console struct {
	stream.Files
	env func(string) (string, bool)
}

// getenv returns the value of a variable, or the empty string.
func (c *console) getenv(name string) string {
	value, _ := c.env(name)
	return value
}

// print writes an answer to stdout. A reader that has enough, such as head, is no error: the exit code is that of SIGPIPE,
// also for a caller that ignores the signal.
func (c *console) print(s string) (int, error) {
	switch _, err := c.Stdout.WriteString(s); {
	case errors.Is(err, unix.EPIPE):
		return stream.ExitSignal + int(unix.SIGPIPE), nil
	case err != nil:
		return 0, fmt.Errorf("write stdout: %w", err)
	}
	return 0, nil
}

// width returns the width of help on stdout.
func (c *console) width() int { return cmdline.TerminalOf(c.Stdout, c.env).Width() }

// printJSON writes an answer to stdout as JSON.
func (c *console) printJSON(v any) (int, error) {
	b, err := marshal(v)
	if err != nil {
		return 0, err
	}
	return c.print(string(b))
}

// report prints err and its hint as one line each, and returns the exit code.
func (c *console) report(verb string, err error) int {
	code := codeOf(err)
	line := err.Error()
	// A missing command is the command's error, not the verb's. Shells print no verb either.
	if verb != "" && (code == exitFailed || code == exitUsage) {
		line = verb + ": " + line
	}
	c.say(line)
	if h := hintOf(err); h != "" {
		fmt.Fprintf(c.Stderr, "hint: %s\n", text.SafeLine(h))
	}
	return code
}

// say prints one line on stderr.
func (c *console) say(line string) { fmt.Fprintf(c.Stderr, "demesne: %s\n", text.SafeLine(line)) }
