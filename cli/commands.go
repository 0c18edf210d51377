package cli

import (
	"slices"
	"strings"

	"demesne/cli/agent"
	"demesne/cli/app"
	"demesne/cli/code"
	"demesne/cli/image"
	"demesne/cli/machine"
	"demesne/cli/network"
	"demesne/cli/run"
	"demesne/cli/sandbox"
	"demesne/cli/server"
	"demesne/internal/cmdline"
)

// group has the commands of one heading of the overview, or some of them.
type group struct {
	heading string
	names   string // of verbs, in their order
	verbs   func() []app.Verb
}

// groups is a function, not a variable, because the run function of help calls it. A start of the program makes the verbs
// of one group only: the tables of flags of all commands cost as much as the start of the Go runtime.
func groups() []group {
	return []group{
		{"Run", "run map worker", func() []app.Verb { return []app.Verb{run.Run(), run.Map(), run.Worker()} }},
		{"Run", "trust", one(server.Trust)},
		{"Sandboxes", "create exec", func() []app.Verb { return []app.Verb{run.Create(), run.Exec()} }},
		{"Sandboxes", "ssh", one(server.SSH)},
		{"Sandboxes", "ls inspect limits stop rm attach cp", func() []app.Verb {
			return []app.Verb{sandbox.List(), sandbox.Inspect(), sandbox.Limits(), sandbox.Stop(), sandbox.Remove(), run.Attach(), sandbox.Copy()}
		}},
		{"Sandboxes", "fork snapshot diff", sandbox.Forks},
		{"Sandboxes", "commit", one(image.Commit)},
		{"Sandboxes", "apply discard", sandbox.Changes},
		{"Sandboxes", "manifest", one(sandbox.Manifest)},
		{"Jobs", "jobs wait logs cancel", run.Jobs},
		{"Code", "code", one(code.Verb)},
		{"Code", "kernel notebook repl", server.Kernels},
		{"Images", "build pull push images tag rmi import export save login logout", image.Verbs},
		{"Network", "egress secret", func() []app.Verb { return []app.Verb{network.Egress(), network.Secret()} }},
		{"Agents", "agent acp research", func() []app.Verb { return []app.Verb{agent.Agent(), agent.ACP(), agent.Research()} }},
		{"Agents", "mcp serve approve deny", func() []app.Verb {
			return []app.Verb{server.MCP(run.Wrap), server.Serve(), server.Approve(), server.Deny()}
		}},
		{"Machine", "top audit check selftest gc", func() []app.Verb {
			return []app.Verb{machine.Top(), machine.Audit(), machine.Check(), server.SelfTest(), machine.GC()}
		}},
		{"Machine", "completion version help", func() []app.Verb { return []app.Verb{completionCommand(), versionCommand(), helpCommand()} }},
	}
}

func one(verb func() app.Verb) func() []app.Verb {
	return func() []app.Verb { return []app.Verb{verb()} }
}

// all makes the verbs of the group.
func (g *group) all() []app.Verb {
	verbs := g.verbs()
	for i := range verbs {
		verbs[i].Group = g.heading
	}
	return verbs
}

// commands makes all verbs, in the order of the overview.
func commands() (all []app.Verb) {
	for _, g := range groups() {
		all = append(all, g.all()...)
	}
	return all
}

// lookup returns the command of a verb.
func lookup(verb string) (*app.Verb, error) {
	for _, g := range groups() {
		if i := slices.Index(strings.Fields(g.names), verb); i >= 0 {
			return &g.all()[i], nil
		}
	}
	_, err := program().Find(verb)
	return nil, err
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
			Words: helpWords(),
		},
		New: func(a *app.App) app.Options { return &helpOptions{App: a} },
	}
}

// helpWords returns the names of commands and topics.
func helpWords() (words []string) {
	for _, g := range groups() {
		words = append(words, strings.Fields(g.names)...)
	}
	return append(words, "exit-codes", "environment")
}
