// Package server has the verbs that start other frontends: mcp, serve, approve, kernel, notebook and repl.
//
// Each is a program of its own, because an HTTP server, the MCP library and ZeroMQ would slow down every run. This package
// has their help, and starts them. It also adds the MCP server to the configuration of a client (package install). mcp wrap
// is a run, and comes from package run as a function.
package server

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/mcp/install"
)

// MCP returns demesne mcp. wrap is demesne mcp wrap, which takes the flags of demesne run.
func MCP(wrap func(*app.App, []string) (int, error)) app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "mcp", Usage: []string{"[--tools SET] [--http ADDR|unix:PATH [--token-file FILE] [--host NAME]…]", "install [--print] [--project] [--env NAME[=VALUE]]… [--tools SET] CLIENT", "uninstall [--project] CLIENT",
				"call [--tools SET] [--json] TOOL [NAME=TEXT | NAME:=JSON]…", "wrap [run's flags] [--] CMD [ARG…]", "wrap --client CLIENT [run's flags] SERVER"},
			Summary: "serve MCP tools, call one, add the server to a client, or sandbox another server",
			About: `Serves MCP tools with which agents run commands in sandboxes: on stdin and stdout, or over HTTP at /mcp. The
program demesne-mcp does the same, with the same flags.

An address that other machines can reach needs a bearer token. A socket at unix:PATH is only for its owner.

install adds an entry for the server to the configuration of a client, and keeps the rest of the file. An entry that
exists keeps its variables, arguments and timeout. --print shows a new entry instead. --project uses the file of the
project in the working directory, such as .mcp.json. uninstall removes the entry. CLIENT is claude-code, codex, cursor,
vscode, opencode, claude-desktop, gemini-cli, windsurf or zed.

call calls one tool of this server, and prints its text, or with --json the whole result. NAME:=JSON is an argument that is
not a text. It exits 1 if the tool failed. Sandboxes and jobs outlive it; sessions of code do not.

wrap runs CMD, an MCP server of another vendor, in a one-shot sandbox, and forwards its messages. It takes the flags of
demesne run. The server's own requests to the client are refused without --allow-requests. Servers that npx, uvx, bunx or pipx start may reach package registries unless a flag says otherwise; all
others have no network. With --client, wrap changes the entry SERVER in the client's configuration, so that the client
starts that server in a sandbox.`,
			Examples: []cmdline.Example{
				{Says: "add the server to Claude Code", Line: "demesne mcp install claude-code"},
				{Says: "show the entry for Codex", Line: "demesne mcp install --print codex"},
				{Says: "add the server to a project, with two settings", Line: "demesne mcp install --project --tools files --env DEMESNE_MAX_MEMORY=2g claude-code"},
				{Says: "serve HTTP clients of this machine", Line: "demesne mcp --http 127.0.0.1:8765"},
				{Says: "read a page of the web", Line: "DEMESNE_ALLOWED_DOMAINS=example.com demesne mcp call --tools web fetch_webpage url=https://example.com/"},
				{Says: "let a server of another vendor see one directory", Line: "demesne mcp wrap --in ~/notes -- npx -y some-mcp-server /in/notes"},
				{Says: "have Cursor start its server notes in a sandbox", Line: "demesne mcp wrap --client cursor --in ~/notes notes"},
			},
			Words: append([]string{"install", "uninstall", "call", "wrap"}, install.Names()...), Raw: true,
			Topics: []cmdline.Topic{install.ServerEnvironment()},
		},
		New: func(a *app.App) app.Options { return &mcpOptions{App: a, wrap: wrap} },
	}
}

// mcpOptions are the options of mcp install and uninstall.
type mcpOptions struct {
	*app.App
	wrap           func(*app.App, []string) (int, error)
	print, project bool
	settings       install.Settings
}

// Flags returns the flags of the server, which the frontend parses, and install's.
func (o *mcpOptions) Flags() cmdline.Flags {
	flags := install.ServerFlags(&install.ServerOptions{})
	flags.Long("tools").Set = o.setTools
	return append(flags,
		cmdline.Flag{Group: app.GroupResult, Long: "print", Set: cmdline.On(&o.print), Help: "with install: print the entry, and change no file"},
		cmdline.Flag{Group: app.GroupResult, Long: "project", Set: cmdline.On(&o.project), Help: "with install and uninstall: use the file of this directory's project"},
		cmdline.Flag{Group: app.GroupResult, Long: "env", Arg: "NAME[=VALUE]", Repeat: true, Set: o.addEnv,
			Help: "with install: set a variable for the server; NAME alone takes the value from this environment"})
}

func (o *mcpOptions) setTools(s string) error {
	sets, err := install.ParseTools(s)
	if err == nil && len(sets) == 0 {
		err = fmt.Errorf("needs a tool set: %s", strings.Join(install.ToolSets(), ", "))
	}
	o.settings.Tools = s
	return err
}

func (o *mcpOptions) addEnv(s string) error {
	if err := app.CheckEnv(s); err != nil {
		return err
	}
	if !strings.Contains(s, "=") {
		value, set := os.LookupEnv(s)
		if !set {
			return errors.New("not set in this environment")
		}
		s += "=" + value
	}
	o.settings.Env = append(o.settings.Env, s)
	return nil
}

func (o *mcpOptions) Run(args []string) (int, error) {
	if len(args) > 0 && (args[0] == "install" || args[0] == "uninstall") {
		c := MCP(o.wrap)
		rest, err := c.With(o.Flags()).Table().UpTo(len(args), args[1:])
		if err != nil {
			return 0, err
		}
		return o.change(args[0], rest)
	}
	if len(args) > 0 && args[0] == "wrap" {
		return o.wrap(o.App, args[1:])
	}
	return app.Become(append([]string{"mcp"}, args...)...)
}

// change adds the entry to a client's configuration, or removes it.
func (o *mcpOptions) change(verb string, args []string) (int, error) {
	if len(args) != 1 {
		return 0, text.Hinted(fmt.Errorf("%s: needs the name of one client", verb), "demesne mcp --help lists them")
	}
	c, err := install.Find(args[0])
	if err != nil {
		return 0, text.Hinted(fmt.Errorf("%s: %w", verb, err), "demesne mcp install --print claude-code prints an entry to adapt for other clients")
	}
	at := install.Here()
	if o.project {
		if at.Project, err = os.Getwd(); err != nil {
			return 0, fmt.Errorf("find working directory: %w", err)
		}
	}
	if verb == "uninstall" {
		if o.print || o.settings.Tools != "" || o.settings.Env != nil {
			return 0, errors.New("uninstall: takes only the flag --project")
		}
		return o.uninstall(c, at)
	}
	return o.install(c, at)
}

func (o *mcpOptions) uninstall(c install.Client, at install.Place) (int, error) {
	did, err := c.Uninstall(at)
	switch {
	case err != nil:
		return 0, fmt.Errorf("uninstall: %w", err)
	case did.Same:
		return o.Print(fmt.Sprintf("%s has no such entry\n", did.Path))
	}
	return o.Print(fmt.Sprintf("removed from %s; backup in %s\n", did.Path, did.Backup))
}

func (o *mcpOptions) install(c install.Client, at install.Place) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	if o.project {
		self = portable(self)
	}
	if o.print {
		text, err := c.Text(self, o.settings)
		if err != nil {
			return 0, err
		}
		return o.Print(text)
	}
	did, err := c.Install(at, self, o.settings)
	if err != nil {
		return 0, text.Hinted(fmt.Errorf("install: %w", err), "demesne mcp install --print %s prints the entry", c.Name)
	}
	return o.Print(told(did))
}

// portable returns the name of the program at a path, if PATH has it: a project's file may be used on other machines.
func portable(self string) string {
	name := filepath.Base(self)
	path, err := exec.LookPath(name)
	if err != nil {
		return self
	}
	found, err := os.Stat(path)
	own, err2 := os.Stat(self)
	if err != nil || err2 != nil || !os.SameFile(found, own) {
		return self
	}
	return name
}

func told(did install.Did) string {
	switch {
	case did.Same:
		return fmt.Sprintf("%s already has the entry\n", did.Path)
	case did.Backup != "":
		return fmt.Sprintf("added to %s; backup in %s\n", did.Path, did.Backup)
	}
	return fmt.Sprintf("wrote %s\n", did.Path)
}
