package app

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// Console is the caller's side of the program: its streams and its environment. Answers go to stdout, and messages of
// demesne itself to stderr.
type Console struct {
	stream.Files
	Env func(string) (string, bool)
}

// Getenv returns the value of a variable, or the empty string.
func (c *Console) Getenv(name string) string {
	value, _ := c.Env(name)
	return value
}

// Print writes an answer to stdout. A reader that has enough, such as head, is not an error: the exit code is SIGPIPE's,
// also for a caller that ignores the signal.
func (c *Console) Print(s string) (int, error) {
	switch _, err := c.Stdout.WriteString(s); {
	case errors.Is(err, unix.EPIPE):
		return stream.ExitSignal + int(unix.SIGPIPE), nil
	case err != nil:
		return 0, fmt.Errorf("write stdout: %w", err)
	}
	return 0, nil
}

// Width returns the width of help on stdout.
func (c *Console) Width() int { return cmdline.TerminalOf(c.Stdout, c.Env).Width() }

// PrintJSON writes an answer to stdout as JSON.
func (c *Console) PrintJSON(v any) (int, error) {
	b, err := Marshal(v)
	if err != nil {
		return 0, err
	}
	return c.Print(string(b))
}

// Report prints err and its hint as one line each, and returns the exit code.
func (c *Console) Report(verb string, err error) int {
	code := ExitCode(err)
	line := err.Error()
	// A missing command is the command's error, not the verb's. Shells print no verb either.
	if verb != "" && (code == ExitFailed || code == ExitUsage) {
		line = verb + ": " + line
	}
	c.Say(line)
	if h := hintOf(err); h != "" {
		fmt.Fprintf(c.Stderr, "hint: %s\n", text.SafeLine(h))
	}
	return code
}

// Say prints one line on stderr.
func (c *Console) Say(line string) { fmt.Fprintf(c.Stderr, "demesne: %s\n", text.SafeLine(line)) }

// Page prints a long answer: through $PAGER or less on a terminal, and as print does elsewhere.
func (c *Console) Page(s string) (int, error) {
	pager := "less"
	if name, ok := c.Env("PAGER"); ok {
		pager = name
	}
	if !stream.IsTerminal(c.Stdout) || c.Getenv("TERM") == "dumb" || pager == "" || pager == "cat" {
		return c.Print(s)
	}
	cmd := exec.Command("/bin/sh", "-c", pager)
	// git's defaults: leave if all fits on the screen, show colours, and do not clear the screen.
	cmd.Env = append(os.Environ(), "LESS="+cmp.Or(c.Getenv("LESS"), "FRX"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(s), c.Stdout, io.Discard
	interrupts := make(chan os.Signal, 1) // they are the pager's, which does not end by them
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	if err := cmd.Run(); notStarted(err) {
		return c.Print(s)
	}
	return 0, nil
}

// notStarted reports whether a shell found no program of that name, or could not execute it.
func notStarted(err error) bool {
	exit, ok := err.(*exec.ExitError)
	return err != nil && (!ok || exit.ExitCode() == 127 || exit.ExitCode() == 126)
}

// Marshal returns JSON for a person and for a terminal: indented, without control characters.
func Marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode JSON: %w", err)
	}
	return []byte(text.SafeJSON(b.String())), nil
}

// MaxCode bounds a program that a sandbox gets on stdin, in bytes.
const MaxCode = 16 << 20

// ReadCode reads a file of this machine, or stdin.
func (c *Console) ReadCode(name string) ([]byte, error) {
	from := c.Stdin
	if name != "-" {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, fsutil.Reason(err)
		}
		defer f.Close()
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeNamedPipe {
			return nil, errors.New("is not a regular file or a pipe")
		}
		from = f
	}
	code, err := io.ReadAll(io.LimitReader(from, MaxCode+1))
	if err != nil {
		return nil, fsutil.Reason(err)
	}
	if len(code) > MaxCode {
		return nil, fmt.Errorf("longer than %s", text.FormatBytes(MaxCode))
	}
	return bytes.TrimPrefix(code, []byte("\xef\xbb\xbf")), nil
}
