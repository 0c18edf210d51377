package cli

import (
	"slices"

	"demesne/cli/agent"
	"demesne/cli/app"
	"demesne/cli/image"
	"demesne/cli/launch"
	"demesne/cli/machine"
	"demesne/cli/network"
	"demesne/cli/sandbox"
	"demesne/internal/cmdline"
)

// commands is a function, not a variable, because the run function of help calls it. Each start of the program calls
// it once, so it copies each command once.
func commands() []app.Verb {
	all := make([]app.Verb, 0, 40)
	all = group(all, "Run", runCommand())
	all = group(all, "Sandboxes", createCommand(), execCommand(), sandbox.List(), sandbox.Inspect(), sandbox.Stop(), sandbox.Remove(), attachCommand(), sandbox.Copy())
	all = group(all, "Sandboxes", sandbox.Forks()...)
	all = group(all, "Sandboxes", image.Commit())
	all = group(all, "Sandboxes", sandbox.Changes()...)
	all = group(all, "Sandboxes", sandbox.Manifest())
	all = group(all, "Jobs", jobCommands()...)
	all = group(all, "Code", codeCommand())
	all = group(all, "Code", kernelCommands()...)
	all = group(all, "Images", image.Verbs()...)
	all = group(all, "Network", network.Egress(), network.Secret())
	all = group(all, "Agents", agent.Agent(), agent.Research(), mcpCommand(), serveCommand(), approveCommand())
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

func runCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "run", Usage: []string{"[flags] [--] CMD [ARG…]", "[flags] -c TEXT [ARG…]", "[flags] --image NAME [--] [ARG…]", "[flags] FILE.py|.js|.ts|.R|.sh|… [ARG…]", "[flags] --language NAME -", "[flags] --commands FILE|-"},
			Summary: "run a command in a one-shot sandbox",
			About: `Makes a sandbox, runs CMD in it, and removes the sandbox. Inside, /in has the inputs, /out is an output directory
that remains, and CMD starts in /workspace. Everything else is read-only, or discarded at the end.

There is no network except a loopback interface, unless flags allow destinations. At the end stderr lists the
connections that were denied.

CMD can be a file of this machine with the name of a program's text, such as app.py, app.js, app.ts, app.R, app.sh or
app.go. It is shown read-only at /in, or in place if a mount or the workspace has it, and the first interpreter runs it
that the sandbox has. A #! line or an executable file wins over the name. A program of the sandbox wins over the file.
With an image that has an entrypoint, a file that a mount or the workspace shows is the entrypoint's argument.
--language NAME says that CMD is a file, or with - stdin.

With --image, the environment, entrypoint, command, working directory and user are the image's, unless flags
override them, as in docker run.

The exit code is that of CMD. With --commands it is that of the first failure. demesne help exit-codes lists the codes of demesne itself.`,
			Examples: []cmdline.Example{
				{Says: "run a command with arguments", Line: "demesne run -- ls -l /"},
				{Says: "run shell text, and keep a file", Line: `demesne run --out result -c 'date > /out/now'`},
				{Says: "read an input; allow one minute and half a gigabyte", Line: "demesne run --in data.csv --timeout 1m --memory 512m -- wc -l /in/data.csv"},
				{Says: "run as part of a pipe", Line: "cat access.log | demesne run -i -- sort -u > sorted"},
				{Says: "run a file by its language's interpreter, with a package of its registry", Line: "demesne run --dependency requests==2.32 app.py --verbose"},
				{Says: "run several commands in one sandbox, until one fails", Line: "demesne run --workspace . --commands steps.json"},
				{Says: "get an interactive shell", Line: "demesne run -it -- bash"},
				{Says: "use the persistent sandbox of a key", Line: "demesne run --key app --workspace . -- make"},
				{Says: "run on an image, which is pulled if it is not here", Line: "demesne run --image python:3.12 -- python -c 'print(1)'"},
				{Says: "allow package registries and one other name", Line: "demesne run --egress package-managers --allow-domain api.example.com:443 -- npm install"},
				{Says: "get output, exit code and receipt as JSON", Line: "demesne run --json --require full -- make test"},
			},
			Operand: cmdline.Argv,
			Habits:  runHabits,
		},
		New: func(a *app.App) app.Bound {
			o := &runOptions{Options: launch.Options{App: a}}
			return app.Bound{Flags: o.flags(), Run: o.run}
		},
	}
}

func createCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "create", Usage: []string{"[flags]"}, Summary: "make a persistent sandbox",
			About: `Makes a sandbox, runs nothing in it, and prints its id. The sandbox exists until demesne rm removes it or its time
is up.

With --key it prints the id of the sandbox that has the key, and makes one only if it does not exist. A flag that is left
out takes that sandbox's value. A flag with another value is an error that names the flag, unless --replace is given.`,
			Examples: []cmdline.Example{
				{Says: "make a sandbox with a name, for a directory of sources", Line: "demesne create --name build --image go --workspace ~/src/app"},
				{Says: "run a command in it", Line: "demesne exec build -- make"},
				{Says: "get the same sandbox each time", Line: "demesne create --key $PWD --workspace ."},
				{Says: "replace it by one with other limits and no files", Line: "demesne create --key $PWD --workspace . --memory 2g --replace"},
			},
			Habits: runHabits,
		},
		New: func(a *app.App) app.Bound {
			o := &createOptions{Options: launch.Options{App: a}}
			return app.Bound{Flags: o.flags(), Run: o.run}
		},
	}
}

func execCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "exec", Usage: []string{"[flags] ID [--] CMD [ARG…]", "[flags] ID -c TEXT [ARG…]", "[flags] --key KEY -- CMD [ARG…]"},
			Summary: "run a command in a persistent sandbox",
			About: `Runs CMD in the sandbox ID, beside other commands that run there. ID can be a name. The exit codes are those of run.

CMD can be a program's text on this machine, as in demesne run. If the sandbox does not show the file, it gets a copy
below /tmp.

Processes that CMD leaves in the background continue, but their output ends with CMD. If demesne is killed (SIGKILL),
CMD ends too. With a terminal it continues, and demesne attach returns to it.

A stopped sandbox is started again with its files and settings. Secrets are the exception, because no file stores
them: give them again, or stderr names the missing ones. A running sandbox that lacks a given secret runs nothing.

With --background, CMD is a job. demesne cancel then ends its process group, but not the sandbox.`,
			Examples: []cmdline.Example{
				{Says: "run a command", Line: "demesne exec build -- make test"},
				{Says: "get a shell", Line: "demesne exec -it build -- bash"},
				{Says: "start a job and wait for it", Line: "demesne wait $(demesne exec --background build -- make test)"},
				{Says: "start a server that continues", Line: `demesne exec build -c 'nohup ./server >/tmp/log 2>&1 &'`},
			},
			Operand: cmdline.Sandbox, Then: cmdline.Argv,
			Habits: execHabits,
		},
		New: func(a *app.App) app.Bound {
			o := &runOptions{Options: launch.Options{App: a}}
			return app.Bound{Flags: o.execFlags(), Run: o.exec}
		},
	}
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
		New: func(a *app.App) app.Bound {
			o := &completionOptions{App: a}
			return app.Bound{Flags: nil, Run: o.run}
		},
	}
}

func versionCommand() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "version", Summary: "print the version", About: "Prints the version of demesne, of Go, and the platform.",
			Examples: []cmdline.Example{{Says: "print the version", Line: "demesne version"}},
		},
		New: func(a *app.App) app.Bound {
			o := &versionOptions{App: a}
			return app.Bound{Flags: nil, Run: o.run}
		},
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
		New: func(a *app.App) app.Bound {
			o := &helpOptions{App: a}
			return app.Bound{Flags: o.flags(), Run: o.run}
		},
	}
}

// helpWords repeats the names of commands and topics, because the table of commands contains it.
var helpWords = []string{
	"run", "create", "exec", "ls", "inspect", "stop", "rm", "attach", "cp", "fork", "snapshot", "diff", "commit", "apply", "discard", "manifest",
	"jobs", "wait", "logs", "cancel", "code", "kernel", "notebook", "repl", "build", "pull", "push", "images", "tag", "rmi", "import", "export", "save", "login", "logout", "egress", "secret", "agent", "research", "mcp", "serve", "approve",
	"top", "audit", "check", "gc", "completion", "version", "help", "exit-codes", "environment",
}
