package app

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/session/project"
)

// ConfigFlag is the flag of verbs that use a project's demesne.toml.
func ConfigFlag() cmdline.Flags {
	return cmdline.Flags{{Group: GroupSandbox, Long: project.NoConfigFlag, Set: func(string) error { return nil },
		Help: "ignore the demesne.toml of the project: see demesne trust"}}
}

// WithProject returns arguments of a verb after the flags of the project's demesne.toml. A file that the user did not approve is
// an error, after a question on the terminal. The arguments then have --no-config, so that a job with them reads no file.
func (a *App) WithProject(c *Verb, args []string) ([]string, error) {
	if c.Name != "run" && c.Name != "agent" || a.ignoresProject(c, args) {
		return args, nil
	}
	f, err := project.Find(".")
	if f == nil || err != nil {
		return args, hintIgnore(err)
	}
	r, err := a.approved(f)
	if err != nil {
		return args, hintIgnore(err)
	}
	flags := r.Run
	if c.Name == "agent" {
		flags = r.Agent
	}
	return slices.Concat(flags, []string{"--" + project.NoConfigFlag}, args), nil
}

// hintIgnore adds to an error how to work without the file.
func hintIgnore(err error) error {
	if err == nil || text.HintOf(err) != "" {
		return err
	}
	return text.Hinted(err, "--%s ignores the file", project.NoConfigFlag)
}

// ignoresProject reports whether a command line uses no file: it has --no-config, asks for help or is wrong, or it is of an
// agent without a terminal, which models can also start.
func (a *App) ignoresProject(c *Verb, args []string) bool {
	line, _ := c.Line(a, args)
	ignored := false
	for i := range line.Flags {
		line.Flags[i].Set = func(string) error { return nil }
	}
	line.Flags.Long(project.NoConfigFlag).Set = cmdline.On(&ignored)
	rest, err := line.Parse(args)
	return err != nil || ignored || c.Name == "agent" && (len(rest) == 0 || rest[0] == "run" || rest[0] == "shim")
}

// approved returns what the user approved of a file, and asks if that is nothing.
func (a *App) approved(f *project.File) (*project.Record, error) {
	r, changed, err := f.Approved()
	if r != nil || err != nil {
		return r, err
	}
	why := "is not approved"
	if changed {
		why = "changed since you approved it"
	}
	refused := text.Hinted(fmt.Errorf("%q: %s", f.Path(), why), "demesne trust %s shows and approves it; --%s ignores it", text.SafeLine(f.Dir), project.NoConfigFlag)
	terminal, err := os.OpenFile(stream.Controlling, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, refused
	}
	terminal.Close()
	argv, err := client.FindFrontend(project.Frontend)
	if err != nil {
		return nil, err
	}
	ask := exec.Command(argv[0], argv[1], "--", f.Dir)
	ask.Stdin, ask.Stdout, ask.Stderr = a.Stdin, a.Stderr, a.Stderr
	if err := ask.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return nil, refused
		}
		return nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	if r, _, err = f.Approved(); r == nil && err == nil { // it changed while the user read it
		err = refused
	}
	return r, err
}
