package cli

import (
	"slices"

	"demesne/cli/agent"
	"demesne/cli/app"
	"demesne/cli/image"
	"demesne/cli/machine"
	"demesne/cli/network"
	"demesne/cli/run"
	"demesne/cli/sandbox"
	"demesne/cli/server"
	"demesne/internal/cmdline"
)

// commands is a function, not a variable, because the run function of help calls it. Each start of the program calls
// it once, so it copies each command once.
func commands() []app.Verb {
	all := make([]app.Verb, 0, 40)
	all = group(all, "Run", run.Run())
	all = group(all, "Sandboxes", run.Create(), run.Exec(), sandbox.List(), sandbox.Inspect(), sandbox.Stop(), sandbox.Remove(), run.Attach(), sandbox.Copy())
	all = group(all, "Sandboxes", sandbox.Forks()...)
	all = group(all, "Sandboxes", image.Commit())
	all = group(all, "Sandboxes", sandbox.Changes()...)
	all = group(all, "Sandboxes", sandbox.Manifest())
	all = group(all, "Jobs", run.Jobs()...)
	all = group(all, "Code", run.Code())
	all = group(all, "Code", server.Kernels()...)
	all = group(all, "Images", image.Verbs()...)
	all = group(all, "Network", network.Egress(), network.Secret())
	all = group(all, "Agents", agent.Agent(), agent.Research(), server.MCP(run.Wrap), server.Serve(), server.Approve())
	return group(all, "Machine", machine.Top(), machine.Audit(), machine.Check(), machine.GC(agent.RemoveSessions), completionCommand(), versionCommand(), helpCommand())
}

// group appends commands under one heading of the overview.
func group(all []app.Verb, name string, more ...app.Verb) []app.Verb {
	from := len(all)
	all = append(all, more...)
	for i := range all[from:] {
		all[from+i].Group = name
	}
	return all
}

// lookup returns the command of a verb.
func lookup(verb string) (*app.Verb, error) {
	all := commands()
	i := slices.IndexFunc(all, func(c app.Verb) bool { return c.Name == verb })
	if i < 0 {
		_, err := program().Find(verb)
		return nil, err
	}
	return &all[i], nil
}

func completionCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "completion", Usage: []string{"bash | zsh | fish"}, Summary: "print a completion script for a shell",
			About: "Prints a script with which a shell completes demesne's commands, flags, sandboxes and images.",
			Examples: []cmdline.Example{
				{Says: "load it in ~/.bashrc", Line: "source <(demesne completion bash)"},
				{Says: "load it in ~/.zshrc, after compinit", Line: "source <(demesne completion zsh)"},
				{Says: "install it for fish", Line: "demesne completion fish > ~/.config/fish/completions/demesne.fish"},
			},
			Words: []string{"bash", "zsh", "fish"},
		},
		New: func(a *app.App) app.Options { return &completionOptions{App: a} },
	}
}

func versionCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "version", Summary: "print the version", About: "Prints the version of demesne, of Go, and the platform.",
			Examples: []cmdline.Example{{Says: "print the version", Line: "demesne version"}},
		},
		New: func(a *app.App) app.Options { return &versionOptions{App: a} },
	}
}

func helpCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "help", Usage: []string{"[COMMAND | TOPIC]", "--markdown", "--man DIR"}, Summary: "explain a command or a topic",
			About: `Explains a command or a topic, or lists all of them. The manual pages have the same text: man demesne-run explains
demesne run.`,
			Examples: []cmdline.Example{
				{Says: "explain run", Line: "demesne help run"},
				{Says: "list the exit codes", Line: "demesne help exit-codes"},
				{Says: "write the manual pages", Line: "demesne help --man /usr/local/share/man/man1"},
			},
			Words: helpWords,
		},
		New: func(a *app.App) app.Options { return &helpOptions{App: a} },
	}
}

// helpWords repeats the names of commands and topics, because the table of commands contains it.
var helpWords = []string{
	"run", "create", "exec", "ls", "inspect", "stop", "rm", "attach", "cp", "fork", "snapshot", "diff", "commit", "apply", "discard", "manifest",
	"jobs", "wait", "logs", "cancel", "code", "kernel", "notebook", "repl", "build", "pull", "push", "images", "tag", "rmi", "import", "export", "save", "login", "logout", "egress", "secret", "agent", "research", "mcp", "serve", "approve",
	"top", "audit", "check", "gc", "completion", "version", "help", "exit-codes", "environment",
}
