package cli

import (
	"cmp"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"demesne/cli/stream"
)

// page prints a long answer: through $PAGER or less on a terminal, and as print does elsewhere.
func (c *console) page(s string) (int, error) {
	pager := "less"
	if name, ok := c.env("PAGER"); ok {
		pager = name
	}
	if !stream.IsTerminal(c.Stdout) || c.getenv("TERM") == "dumb" || pager == "" || pager == "cat" {
		return c.print(s)
	}
	cmd := exec.Command("/bin/sh", "-c", pager)
	// As git has it: leave if all fits on the screen, show colours, and do not clear the screen.
	cmd.Env = append(os.Environ(), "LESS="+cmp.Or(c.getenv("LESS"), "FRX"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(s), c.Stdout, io.Discard
	interrupts := make(chan os.Signal, 1) // they are the pager's, which does not end by them
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	if err := cmd.Run(); notStarted(err) {
		return c.print(s)
	}
	return 0, nil
}

// notStarted reports whether a shell found no program of that name, or could not execute it.
func notStarted(err error) bool {
	exit, ok := err.(*exec.ExitError)
	return err != nil && (!ok || exit.ExitCode() == 127 || exit.ExitCode() == 126)
}
