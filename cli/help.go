package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// program returns the tables of all commands, for help. Their flags set nothing.
func program() *cmdline.Program {
	p := &cmdline.Program{
		Name:    app.ProgramName,
		Summary: "run untrusted commands in rootless sandboxes",
		About: `Runs untrusted commands in rootless sandboxes, without a daemon. A one-shot sandbox exists for one command. A
persistent sandbox exists until it is removed.`,
		Start: []cmdline.Example{
			{Line: "demesne run -- CMD", Says: "run a command in a one-shot sandbox"},
			{Line: "demesne run -it -- bash", Says: "get a shell in a one-shot sandbox"},
			{Line: "demesne run --in FILE -- CMD", Says: "show CMD a file, at /in"},
			{Line: "demesne run --out DIR -- CMD", Says: "keep the files that CMD writes to /out"},
			{Line: "demesne run --image python -- CMD", Says: "run on an image"},
			{Line: "demesne run --allow-domain NAME …", Says: "allow connections to a host"},
			{Line: "demesne create --name build", Says: "make a persistent sandbox"},
			{Line: "demesne exec build -- CMD", Says: "run a command in it"},
			{Line: "demesne stop build", Says: "end its processes, and keep its files"},
			{Line: "demesne rm build", Says: "remove it"},
			{Line: "demesne mcp install CLIENT", Says: "let an agent use sandboxes"},
			{Line: "demesne check", Says: "report what this machine supports"},
		},
		Topics: []cmdline.Topic{exitCodes(), environment()},
		Habits: programHabits,
	}
	for _, c := range commands() {
		line, _ := c.Line(&app.App{}, nil)
		p.Commands = append(p.Commands, *line)
	}
	return p
}

func exitCodes() cmdline.Topic {
	return cmdline.Topic{
		Name: "exit-codes", Section: "EXIT STATUS", Summary: "what the exit codes mean",
		Text: "run and exec exit with the code of the command. Other commands exit with 0. These codes are demesne's:",
		Entries: []cmdline.Entry{
			{Name: "1", Text: "check, code validate, images check, pull --list, manifest verify or egress found a problem"},
			{Name: "2", Text: "demesne has no such command, or code validate was used wrongly"},
			{Name: "124", Text: "the command exceeded --timeout"},
			{Name: "125", Text: "demesne failed; stderr has the reason"},
			{Name: "126", Text: "the command exists but cannot be executed"},
			{Name: "127", Text: "the command was not found"},
			{Name: "128+n", Text: "signal n ended the command; 137 can also mean a limit, which stderr names"},
		},
	}
}

func environment() cmdline.Topic {
	return cmdline.Topic{
		Name: "environment", Section: "ENVIRONMENT", Summary: "the variables that demesne reads",
		Text: "demesne reads these variables. demesne-mcp(1) has the MCP server's. Only demesne serve has a configuration file.",
		Entries: []cmdline.Entry{
			{Name: "DEMESNE_DEFAULT_IMAGE", Text: "image of runs without --image (default host)"},
			{Name: "DEMESNE_OUTPUT_ROOT", Text: "directory for the /out of runs without --out (default ~/.demesne/out)"},
			{Name: "DEMESNE_SANDBOX_ROOT", Text: "directory for the files of persistent sandboxes (default ~/.demesne/sandboxes, for root /var/lib/demesne/sandboxes)"},
			{Name: "DEMESNE_IMAGE_STORE", Text: "directory for images (default ~/.demesne/images, for root /var/lib/demesne/images)"},
			{Name: "DEMESNE_VAULT_KEY", Text: "where the key of stored secrets is, file:PATH or cmd:TEXT (default a file beside the secrets)"},
			{Name: "DEMESNE_LIBEXEC", Text: "directory of demesne's other programs (default the directory of demesne)"},
			{Name: "DEMESNE_LINGER", Text: "how long a runner lingers after its last sandbox, from 0 to 1h (default 10s)"},
			{Name: "DEMESNE_POOL_SIZE", Text: "how many sandboxes a runner prepares in advance, from 0 to 16 (default 4)"},
			{Name: "DEMESNE_MAX_SANDBOXES", Text: "how many persistent sandboxes a user can have (default 64)"},
			{Name: "DEMESNE_MAX_JOBS", Text: "how many background jobs run at once (default 64)"},
			{Name: "DEMESNE_MAX_TOTAL_MEMORY, _DISK, _PIDS, _CPUS", Text: "ceilings for the sum of a limit over all running sandboxes of a user (default none)"},
			{Name: "DEMESNE_DENIED_COMMANDS", Text: "commands that are refused: regular expressions, separated by commas; the word standard stands for docker, mount, modprobe and nsenter. A courtesy to models, and no boundary"},
			{Name: "DEMESNE_MAX_COPY_BYTES, DEMESNE_MAX_COPY_FILES", Text: "limits of one copy (default 64g and 1048576)"},
			{Name: "NO_COLOR", Text: "if it is not empty, nothing is printed in colour"},
		},
	}
}

type helpOptions struct {
	*app.App
	markdown bool
	man      string
}

func (o *helpOptions) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupResult, Long: "markdown", Set: cmdline.On(&o.markdown), Help: "print the reference of all commands in Markdown"},
		{Group: app.GroupResult, Long: "man", Arg: "DIR", Complete: cmdline.Directory, Set: cmdline.Text(&o.man),
			Help: "write the manual pages into a directory"},
	}
}

func (o *helpOptions) Run(args []string) (int, error) {
	switch {
	case len(args) > 1:
		return 0, errors.New("more than one command given")
	case o.markdown:
		return o.Print(program().Markdown())
	case o.man != "":
		return 0, writeManual(o.man)
	case len(args) == 0:
		return o.Print(program().Listing(o.Width()))
	}
	text, err := program().Explain(args[0], o.Width())
	if err != nil {
		return 0, err
	}
	return o.Print(text)
}

// writeManual writes the manual pages. demesne mcp and the program demesne-mcp share a page.
func writeManual(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write manual pages: %w", err)
	}
	for name, text := range program().Manual() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
	}
	return nil
}

type versionOptions struct {
	*app.App
}

func (o *versionOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	return o.Print((&cmdline.Program{Name: app.ProgramName}).VersionLine())
}

type completionOptions struct {
	*app.App
}

func (o *completionOptions) Run(args []string) (int, error) {
	if len(args) != 1 {
		return 0, text.Hinted(errors.New("needs the name of one shell"), "demesne completion bash | zsh | fish")
	}
	text, err := program().Completion(args[0])
	if err != nil {
		return 0, err
	}
	return o.Print(text)
}
