package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// ProgramName begins each command line.
const ProgramName = "demesne"

// Verb is one verb of demesne.
type Verb struct {
	cmdline.Command // without its flags
	New             func(*App) Options
}

// Options are the options of one command line. Run executes it with the operands, after the flags were set.
type Options interface {
	Flags() cmdline.Flags
	Run(operands []string) (code int, err error)
}

// Flags returns no flags, for the options of a verb without any.
func (a *App) Flags() cmdline.Flags { return nil }

// Line returns a command line of c with arguments, and its options.
func (c *Verb) Line(a *App, args []string) (*cmdline.Command, Options) {
	own := *a
	own.Verb, own.Args = c.Name, args
	o := c.New(&own)
	return c.With(o.Flags()), o
}

// With returns the command line of c with flags.
func (c *Verb) With(flags cmdline.Flags) *cmdline.Command {
	line := c.Command
	line.Program, line.Flags = ProgramName, flags
	return &line
}

// External returns a verb whose command line another program parses. first comes before the arguments of the user.
func External(line cmdline.Command, flags func() cmdline.Flags, program string, first ...string) Verb {
	line.Raw, line.Flags = true, nil
	return Verb{Command: line, New: func(*App) Options { return &externalOptions{flags, program, first} }}
}

type externalOptions struct {
	flags   func() cmdline.Flags
	program string
	first   []string
}

func (o *externalOptions) Flags() cmdline.Flags { return o.flags() }

func (o *externalOptions) Run(args []string) (int, error) {
	return become(o.program, slices.Concat(o.first, args))
}

// Become executes the frontends' program in place of this one.
func Become(args ...string) (int, error) { return become(client.FrontendProgram, args) }

func become(name string, args []string) (int, error) {
	path, err := client.FindProgram(name)
	if err != nil {
		return 0, err
	}
	if err := unix.Exec(path, append([]string{name}, args...), os.Environ()); err != nil {
		return 0, fmt.Errorf("start %q: %w", path, err)
	}
	return 0, nil
}

// The headings of flags in --help.
const (
	GroupSandbox = "Sandbox"
	GroupNetwork = "Network"
	GroupLimits  = "Limits"
	GroupCommand = "Command"
	GroupResult  = "Result"
)

// JSONFlag is the flag of commands that can print their answer as JSON.
func JSONFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: GroupResult, Long: "json", Set: cmdline.On(to), Help: "print JSON"}}
}

// QuietFlag is the flag of commands that can print less.
func QuietFlag(to *bool, what string) cmdline.Flags {
	return cmdline.Flags{{Group: GroupResult, Long: "quiet", Short: 'q', Set: cmdline.On(to), Help: what}}
}

// CheckEnv checks NAME or NAME=VALUE.
func CheckEnv(s string) error {
	name, value, _ := strings.Cut(s, "=")
	if !IsEnvName(name) {
		return errors.New("not a variable name (letters, digits and '_', no digit first)")
	}
	if strings.ContainsRune(value, 0) {
		return errors.New("has a NUL byte")
	}
	return nil
}

// IsEnvName reports whether a variable can have that name.
func IsEnvName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// OneSandbox returns the operand of a command that takes exactly one sandbox.
func OneSandbox(args []string) (string, error) {
	switch {
	case len(args) == 0:
		return "", text.Hinted(errors.New("needs the name of a sandbox"), "demesne ls lists sandboxes")
	case len(args) > 1:
		return "", fmt.Errorf("unexpected argument %q", args[1])
	}
	return args[0], nil
}

// NoSuchSandbox reports whether err means that there is no such sandbox.
func NoSuchSandbox(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox
}

// CheckInput checks the path of an input without a look at the file system.
func CheckInput(arg string) error {
	switch {
	case arg == "":
		return errors.New("empty")
	case strings.ContainsRune(arg, 0):
		return errors.New("has a NUL byte")
	}
	return nil
}
