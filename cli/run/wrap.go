package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/mcp/filter"
	"demesne/mcp/install"
	"demesne/runner"
)

// packageRunners are programs that download the program they run.
var packageRunners = []string{"npx", "bunx", "uvx", "pipx"}

// wrapLine describes demesne mcp wrap: run's flags and --client.
func (o *runOptions) wrapLine(client *string, requests *bool) *cmdline.Command {
	c := Run()
	line := c.With(o.Flags())
	line.Name, line.Usage = "mcp wrap", []string{"[run's flags] [--] CMD [ARG…]", "--client CLIENT [run's flags] SERVER"}
	line.About = `Runs CMD, an MCP server of another vendor, in a one-shot sandbox, and forwards its messages. With --client it
changes the entry SERVER in the client's configuration, so that the client starts that server in a sandbox.`
	line.Examples = []cmdline.Example{
		{Says: "let a server see one directory", Line: "demesne mcp wrap --in ~/notes -- npx -y some-mcp-server /in/notes"},
		{Says: "have Cursor start its server notes in a sandbox", Line: "demesne mcp wrap --client cursor --in ~/notes notes"},
	}
	line.Topics = nil
	line.Flags = append(line.Flags, cmdline.Flag{Group: app.GroupResult, Long: "client", Arg: "CLIENT", Words: install.Names(), Set: cmdline.Text(client),
		Help: "change the configuration of this client instead of running a server"},
		cmdline.Flag{Group: app.GroupResult, Long: "allow-requests", Set: cmdline.On(requests),
			Help: "pass the server's own requests: to ask the user, to use the client's model, to list its directories"})
	return line
}

// Wrap runs an MCP server in a one-shot sandbox, with stdin and stdout for its messages, which a [filter.Wire] filters. With --client it changes a
// client's configuration instead, so that the client does so.
func Wrap(a *app.App, args []string) (int, error) {
	own := *a
	own.Verb, own.Args = "run", args
	o := &runOptions{Options: launch.Options{App: &own}}
	client, requests := "", false
	line := o.wrapLine(&client, &requests)
	rest, err := line.Parse(args)
	switch {
	case errors.Is(err, cmdline.ErrHelp):
		return a.Print(line.Help(a.Width()))
	case err != nil:
		return 0, err
	case o.TTY || o.background || o.JSON:
		return 0, errors.New("wrap: cannot be combined with --tty, --background or --json: stdin and stdout carry MCP messages")
	case client != "":
		flags, err := absoluteFlags(line, args)
		if err != nil {
			return 0, err
		}
		return wrapEntry(a, client, flags, rest)
	}
	if root, err := o.NewRoot(); err == nil && len(rest) == 0 && o.Shell == nil && o.Entrypoint == nil && !root.Ref.Stored() {
		return 0, text.Hinted(errors.New("wrap: no command given"), "demesne mcp wrap --help shows examples")
	}
	o.Interactive = true
	if n := &o.Network; len(rest) > 0 && slices.Contains(packageRunners, filepath.Base(rest[0])) && n.Mode == "" && n.File == "" && !n.Learn {
		n.Mode = runner.PackageManagers
	}
	w, err := filter.New(a.Stdin, a.Stdout, a.Say, requests)
	if err != nil {
		return 0, fmt.Errorf("wrap: make pipes: %w", err)
	}
	own.Stdin, own.Stdout = w.Stdin, w.Stdout
	r, err := o.newRun(rest)
	if err != nil {
		return 0, err
	}
	defer w.Close()
	return r.finish()
}

// absoluteFlags returns the flags of a command line without --client, in their long forms and with absolute paths: the
// client starts the server in a directory of its own.
func absoluteFlags(line *cmdline.Command, args []string) (flags []string, err error) {
	own := *line
	own.Flags = slices.Clone(line.Flags)
	for i := range own.Flags {
		f := &own.Flags[i]
		f.Set = func(value string) error {
			if f.Long != "client" {
				flags = append(flags, launch.Absolute(f, value)...)
			}
			return nil
		}
	}
	_, err = own.Parse(args)
	return flags, err
}

func wrapEntry(a *app.App, client string, flags, rest []string) (int, error) {
	if len(rest) != 1 {
		return 0, text.Hinted(errors.New("wrap: needs the name of one server, after the flags"), "demesne mcp wrap --help shows an example")
	}
	c, err := install.Find(client)
	if err != nil {
		return 0, fmt.Errorf("wrap: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	did, err := c.Wrap(install.Here(), self, rest[0], flags)
	if err != nil {
		return 0, fmt.Errorf("wrap: %w", err)
	}
	return a.Print(fmt.Sprintf("changed the server %s in %s; backup in %s\n", rest[0], did.Path, did.Backup))
}
