package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/mcpinstall"
	"demesne/runner/client"
)

// mcpProgram is the MCP server. It is a separate program because the MCP library would cost every run 2 ms.
const mcpProgram = "demesne-mcp"

func mcpCommand() command {
	return command{
		Command: cli.Command{
			Name: "mcp", Usage: []string{"[--tools SET] [--http ADDR|unix:PATH [--token-file FILE] [--host NAME]…]", "install [--print] CLIENT",
				"wrap [run's flags] [--] CMD [ARG…]", "wrap --client CLIENT [run's flags] SERVER"},
			Summary: "serve MCP tools, add the server to a client, or sandbox another server",
			About: `Serves MCP tools with which agents run commands in sandboxes: on stdin and stdout, or over HTTP at /mcp. It executes
the program demesne-mcp, which takes the same flags.

An address that other machines can reach needs a bearer token. A socket at unix:PATH is for its owner alone.

install adds an entry for the server to the configuration of a client, and keeps the rest of the file. --print shows the
entry instead. CLIENT is claude-code, codex, cursor, vscode, opencode or claude-desktop.

wrap runs CMD, an MCP server of another vendor, in a one-shot sandbox, and forwards stdin and stdout. It takes the flags
of demesne run. Servers that npx, uvx, bunx or pipx start may reach package registries unless a flag says otherwise; all
others have no network. With --client, wrap changes the entry SERVER in the client's configuration, so that the client
starts that server in a sandbox.`,
			Examples: []cli.Example{
				{Says: "add the server to Claude Code", Line: "demesne mcp install claude-code"},
				{Says: "show the entry for Codex", Line: "demesne mcp install --print codex"},
				{Says: "serve HTTP clients of this machine", Line: "demesne mcp --http 127.0.0.1:8765"},
				{Says: "let a server of another vendor see one directory", Line: "demesne mcp wrap --in ~/notes -- npx -y some-mcp-server /in/notes"},
				{Says: "have Cursor start its server notes in a sandbox", Line: "demesne mcp wrap --client cursor --in ~/notes notes"},
			},
			Words: append([]string{"install", "wrap"}, mcpinstall.Names()...), Raw: true,
			Topics: []cli.Topic{mcpinstall.ServerEnvironment()},
		},
		flags: mcpFlags, run: cmdMCP,
	}
}

// mcpFlags returns demesne-mcp's flags, which that program parses, and --print.
func mcpFlags(o *options) cli.Flags {
	return append(mcpinstall.ServerFlags(&mcpinstall.ServerOptions{}),
		cli.Flag{Group: groupResult, Long: "print", Set: cli.On(&o.print), Help: "with install: print the entry, and change no file"})
}

func cmdMCP(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 && args[0] == "install" {
		c := mcpCommand()
		rest, err := c.bound(o).Table().UpTo(len(args), args[1:])
		if err != nil {
			return 0, err
		}
		return installMCP(&a.console, o.print, rest)
	}
	if len(args) > 0 && args[0] == "wrap" {
		return cmdWrap(a, args[1:])
	}
	path, err := client.FindProgram(mcpProgram)
	if err != nil {
		return 0, err
	}
	if err := unix.Exec(path, append([]string{mcpProgram}, args...), os.Environ()); err != nil {
		return 0, fmt.Errorf("start %q: %w", path, err)
	}
	return 0, nil
}

func installMCP(on *console, printOnly bool, args []string) (int, error) {
	if len(args) != 1 {
		return 0, hinted(fmt.Errorf("install: needs the name of one client"), "demesne mcp --help lists them")
	}
	c, err := mcpinstall.Find(args[0])
	if err != nil {
		return 0, hinted(fmt.Errorf("install: %w", err), "demesne mcp install --print claude-code prints an entry to adapt for other clients")
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	if printOnly {
		text, err := c.Text(self)
		if err != nil {
			return 0, err
		}
		return on.print(text)
	}
	did, err := c.Install(mcpinstall.Here(), self)
	if err != nil {
		return 0, hinted(fmt.Errorf("install: %w", err), "demesne mcp install --print %s prints the entry", c.Name)
	}
	return on.print(told(did))
}

func told(did mcpinstall.Did) string {
	switch {
	case did.Same:
		return fmt.Sprintf("%s already has the entry\n", did.Path)
	case did.Backup != "":
		return fmt.Sprintf("added to %s; backup in %s\n", did.Path, did.Backup)
	}
	return fmt.Sprintf("wrote %s\n", did.Path)
}
