package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

const programName = "demesne"

// command is one verb. The function commands lists them.
type command struct {
	cmdline.Command // without its flags
	new             func(*app) bound
}

// bound are the flags of one command line, which set options of their own, and the function that takes these options.
type bound struct {
	flags cmdline.Flags
	run   func(args []string) (int, error)
}

// line returns a command line of c with arguments, and the function that executes it after its flags were parsed.
func (c *command) line(a *app, args []string) (*cmdline.Command, func([]string) (int, error)) {
	own := *a
	own.verb, own.args = c.Name, args
	b := c.new(&own)
	return c.with(b.flags), b.run
}

// with returns the command line of c with flags.
func (c *command) with(flags cmdline.Flags) *cmdline.Command {
	line := c.Command
	line.Program, line.Flags = programName, flags
	return &line
}

// external returns a verb whose command line another program parses. first are arguments before those of the user.
func external(line cmdline.Command, flags func() cmdline.Flags, program string, first ...string) command {
	line.Raw, line.Flags = true, nil
	return command{Command: line, new: func(*app) bound {
		return bound{flags(), func(args []string) (int, error) { return executeProgram(program, slices.Concat(first, args)) }}
	}}
}

// executeProgram executes another program of demesne in place of this one.
func executeProgram(name string, args []string) (int, error) {
	path, err := client.FindProgram(name)
	if err != nil {
		return 0, err
	}
	if err := unix.Exec(path, append([]string{name}, args...), os.Environ()); err != nil {
		return 0, fmt.Errorf("start %q: %w", path, err)
	}
	return 0, nil
}

const (
	groupSandbox = "Sandbox"
	groupNetwork = "Network"
	groupLimits  = "Limits"
	groupCommand = "Command"
	groupResult  = "Result"
)

// jsonFlag is the flag of commands that can print their answer as JSON.
func jsonFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: groupResult, Long: "json", Set: cmdline.On(to), Help: "print JSON"}}
}

// quietFlag is the flag of commands that can print less.
func quietFlag(to *bool, what string) cmdline.Flags {
	return cmdline.Flags{{Group: groupResult, Long: "quiet", Short: 'q', Set: cmdline.On(to), Help: what}}
}

func checkEnv(s string) error {
	name, value, _ := strings.Cut(s, "=")
	if !isEnvName(name) {
		return errors.New("not a variable name (letters, digits and '_', no digit first)")
	}
	if strings.ContainsRune(value, 0) {
		return errors.New("has a NUL byte")
	}
	return nil
}

func isEnvName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// oneSandbox returns the operand of a command that takes exactly one sandbox.
func oneSandbox(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", hinted(errors.New("needs the name of a sandbox"), "demesne ls lists sandboxes")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return args[0], nil
}

// lacks reports whether err means that there is no such sandbox.
func lacks(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox
}
