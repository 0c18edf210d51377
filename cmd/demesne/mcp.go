package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"demesne/cmd/internal/mcpinstall"
	"demesne/runner/client"
)

// mcpProgram is the MCP server. It is a separate program because the MCP library would cost every run 2 ms.
const mcpProgram = "demesne-mcp"

func mcpCommand() command {
	return command{
		name: "mcp", usage: []string{"[--tools SET] [--http ADDR|unix:PATH [--token-file FILE] [--host NAME]…]", "install [--print] CLIENT"},
		summary: "serve MCP tools, or tell a client to",
		about: `Serves the tools that agents run commands with, over stdin and stdout, or over HTTP at /mcp. It is
the program demesne-mcp, whose environment docs/reference/environment.md lists. install writes an entry that
starts it into the configuration of a client, and keeps what was there beside it; --print only shows it.
CLIENT is claude-code, codex, cursor, vscode, opencode or claude-desktop.`,
		examples: []example{
			{"for Claude Code", "demesne mcp install claude-code"},
			{"what would be written", "demesne mcp install --print codex"},
			{"over HTTP, for this machine", "demesne mcp --http 127.0.0.1:8765"},
		},
		flags: mcpFlags, operand: aWord, words: append([]string{"install"}, mcpinstall.Names()...), raw: true, run: cmdMCP,
	}
}

// mcpFlags lists demesne-mcp's flags, and --print. demesne-mcp itself parses them.
func mcpFlags(o *options) flagSet {
	theirs := func(string) error { return nil }
	return flagSet{
		{group: groupGeneral, long: "tools", arg: "SET", set: theirs, help: "tool set besides the usual tools: files, to read, write, edit and search files of a sandbox (default $DEMESNE_TOOLS)"},
		{group: groupGeneral, long: "http", arg: "ADDR", set: theirs, help: "listen there (host:port, or unix:PATH) in place of stdin and stdout"},
		{group: groupGeneral, long: "token-file", arg: "FILE", complete: aFile, set: theirs,
			help: "file whose first line HTTP clients must send as bearer token (default $DEMESNE_MCP_TOKEN)"},
		{group: groupGeneral, long: "host", arg: "NAME", repeat: true, set: theirs, help: "name, besides localhost, that the server is called by"},
		{group: groupResult, long: "print", set: on(&o.print), help: "with install: show the entry, and write nothing"},
	}
}

func cmdMCP(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 && args[0] == "install" {
		c := mcpCommand()
		rest, err := c.table(o).upTo(len(args), args[1:], &o.help)
		if err != nil || o.help {
			return 0, err
		}
		return a.installMCP(o, rest)
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

func (a *app) installMCP(o *options, args []string) (int, error) {
	if len(args) != 1 {
		return 0, hinted(fmt.Errorf("install: needs the name of one client"), "demesne mcp --help lists them")
	}
	c, err := mcpinstall.Find(args[0])
	if err != nil {
		return 0, hinted(fmt.Errorf("install: %w", err), "demesne mcp install --print claude-code shows an entry for other clients")
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	if o.print {
		text, err := c.Text(self)
		if err != nil {
			return 0, err
		}
		return a.print(text)
	}
	did, err := c.Install(mcpinstall.Here(), self)
	if err != nil {
		return 0, hinted(fmt.Errorf("install: %w", err), "demesne mcp install --print %s shows the entry", c.Name)
	}
	return a.print(told(did))
}

func told(did mcpinstall.Did) string {
	switch {
	case did.Same:
		return fmt.Sprintf("%s has it already\n", did.Path)
	case did.Backup != "":
		return fmt.Sprintf("added to %s; what it was is in %s\n", did.Path, did.Backup)
	}
	return fmt.Sprintf("wrote %s\n", did.Path)
}
