package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/mcpinstall"
)

// packageRunners are programs that download the program they run.
var packageRunners = []string{"npx", "bunx", "uvx", "pipx"}

// cmdWrap runs an MCP server in a one-shot sandbox, with stdin and stdout for its messages. With --client it changes a
// client's configuration instead, so that the client does so.
func cmdWrap(a *app, args []string) (int, error) {
	o := &options{verb: "run", line: args}
	client := ""
	c := runCommand()
	line := c.bound(o)
	line.Flags = append(line.Flags, cli.Flag{Group: groupResult, Long: "client", Arg: "CLIENT", Set: cli.Text(&client)})
	rest, err := line.Parse(args)
	switch {
	case errors.Is(err, cli.ErrHelp):
		m := mcpCommand()
		return a.print(m.bound(&options{}).Help(a.width()))
	case err != nil:
		return 0, err
	case o.tty || o.background || o.json:
		return 0, errors.New("wrap: cannot be combined with --tty, --background or --json: stdin and stdout carry MCP messages")
	case client != "":
		return a.wrapEntry(client, withoutClient(args[:len(args)-len(rest)]), rest)
	}
	o.interactive = true
	if n := &o.network; len(rest) > 0 && slices.Contains(packageRunners, filepath.Base(rest[0])) && n.mode == "" && n.file == "" && !n.learn {
		n.mode = "package-managers"
	}
	r, err := a.newRun(o, rest)
	if err != nil {
		return 0, err
	}
	return r.finish()
}

// withoutClient removes --client and its value from flags.
func withoutClient(flags []string) (rest []string) {
	for i := 0; i < len(flags); i++ {
		switch {
		case flags[i] == "--client":
			i++
		case strings.HasPrefix(flags[i], "--client=") || flags[i] == "--":
		default:
			rest = append(rest, flags[i])
		}
	}
	return rest
}

func (a *app) wrapEntry(client string, flags, rest []string) (int, error) {
	if len(rest) != 1 {
		return 0, hinted(errors.New("wrap: needs the name of one server, after the flags"), "demesne mcp --help shows an example")
	}
	c, err := mcpinstall.Find(client)
	if err != nil {
		return 0, fmt.Errorf("wrap: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	did, err := c.Wrap(mcpinstall.Here(), self, rest[0], flags)
	if err != nil {
		return 0, fmt.Errorf("wrap: %w", err)
	}
	return a.print(fmt.Sprintf("changed the server %s in %s; backup in %s\n", rest[0], did.Path, did.Backup))
}
