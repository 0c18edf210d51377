package main

import (
	"fmt"
	"slices"

	"demesne/internal/suggest"
)

// command is one verb. The function commands lists them.
type command struct {
	name     string
	usage    []string // the operands after "demesne NAME"
	summary  string
	about    string
	examples []example
	flags    func(*options) flagSet
	operand  what     // kind of its operands, for completion
	words    []string // for operand == aWord
	raw      bool     // another program parses its flags
	run      func(*app, *options, []string) (int, error)
}

type example struct{ says, line string }

// commands is a function, not a variable, because the run function of help calls it.
func commands() []command {
	return slices.Concat([]command{
		runCommand(), createCommand(), execCommand(),
		{
			name: "ls", usage: []string{"[--json | -q]"}, summary: "list sandboxes",
			about: "Lists the sandboxes of this user, the oldest first: those that run, those that are stopped, and snapshots. With --json and -q the order is the same.",
			examples: []example{
				{"everything there is", "demesne ls"},
				{"stop everything there is", "demesne ls -q | xargs -r demesne stop"},
			},
			flags: lsFlags, run: cmdLs,
		},
		{
			name: "inspect", usage: []string{"[--json] ID"}, summary: "show a sandbox and its receipt",
			about: `Shows what a sandbox was asked to be and what the kernel really enforces of it:
every layer, the id map, the limits and what holds each, and for whatever is less
than it could be the reason and the line that lifts it. ID may be a name.`,
			examples: []example{
				{"for reading", "demesne inspect build"},
				{"for programs", "demesne inspect --json build"},
			},
			flags: jsonFlag, operand: aSandbox, run: cmdInspect,
		},
		{
			name: "stop", usage: []string{"ID…"}, summary: "end the processes of sandboxes, and keep their files",
			about: `Ends everything that runs in the sandboxes and keeps their files: the next demesne exec starts a sandbox
again. demesne rm removes a sandbox with its files.`,
			examples: []example{
				{"for the night", "demesne stop build"},
				{"everything there is", "demesne ls -q | xargs -r demesne stop"},
			},
			flags: noFlags, operand: aSandbox, run: cmdStop,
		},
		{
			name: "rm", usage: []string{"[--force] ID…"}, summary: "remove sandboxes and their files",
			about: `Ends what runs in the sandboxes and removes them with their files. Stopped sandboxes and snapshots are
removed likewise. Their output stays, unless it is empty.`,
			examples: []example{
				{"one by its name", "demesne rm build"},
				{"every one there is", "demesne ls -q | xargs -r demesne rm --force"},
			},
			flags: removeFlags, operand: aSandbox, run: cmdRemove,
		},
		attachCommand(), copyCommand(), manifestCommand(),
	}, forkCommands(), jobCommands(), imageCommands(), []command{
		egressCommand(), mcpCommand(),
		{
			name: "check", usage: []string{"[--json]"}, summary: "say what this machine lets a sandbox have",
			about: `Tries each thing a sandbox is made of, and says whether it is held, degraded or
missing, why, and the exact line that fixes it. Exits 1 if something is missing.`,
			examples: []example{{"for reading", "demesne check"}, {"for programs", "demesne check --json"}},
			flags:    jsonFlag, run: cmdCheck,
		},
		completionCommand(),
		{
			name: "version", summary: "print the version", about: "Prints the version of this program.",
			examples: []example{{"this", "demesne version"}},
			flags:    noFlags, run: cmdVersion,
		},
		{
			name: "help", usage: []string{"[--markdown] [COMMAND]"}, summary: "explain a command",
			about:    "Explains a command, or lists them.",
			examples: []example{{"all about run", "demesne help run"}, {"the reference in Markdown", "demesne help --markdown"}},
			flags:    helpFlags, operand: aWord, words: verbs, run: cmdHelp,
		},
	})
}

// verbs repeats the names of commands, for the one entry that completes to them.
var verbs = []string{
	"run", "create", "exec", "ls", "inspect", "stop", "rm", "attach", "cp", "manifest", "fork", "snapshot", "diff", "commit",
	"jobs", "wait", "logs", "cancel",
	"pull", "images", "rmi", "import", "export", "save", "gc",
	"egress", "mcp",
	"check", "completion", "version", "help",
}

func runCommand() command {
	return command{
		name: "run", usage: []string{"[flags] [--] CMD [ARG…]", "[flags] -c TEXT [ARG…]", "[flags] --image NAME [--] [ARG…]"},
		summary: "run a command in a sandbox of its own",
		about: `Makes a sandbox, runs CMD in it, and takes the sandbox away again. Inside, /in has
the inputs, /out is a directory that stays, /workspace is where the command starts;
everything else is read-only or thrown away. There is no network but a loopback, unless
flags name what may be reached; what was wanted besides is told at the end.
With --image, environment, entrypoint, command, working directory and user are the
image's unless flags say otherwise, as docker run has it. The exit code is the command's; 124 timed out, 125 demesne could not, 126 not
executable, 127 not found, 128+n ended by signal n.`,
		examples: []example{
			{"a command and its arguments", "demesne run -- ls -l /"},
			{"shell text, and a file that comes back", `demesne run --out result -c 'date > /out/now'`},
			{"an input, and no more than a minute and half a gigabyte", "demesne run --in data.csv --timeout 1m --memory 512m -- wc -l /in/data.csv"},
			{"in a pipe", "cat access.log | demesne run -i -- sort -u > sorted"},
			{"by hand", "demesne run -it -- bash"},
			{"in the sandbox of a key, which stays", "demesne run --key app --workspace . -- make"},
			{"on an image, which is pulled if it is not here", "demesne run --image python:3.12 -- python -c 'print(1)'"},
			{"with names it may reach, and nothing else", "demesne run --egress package-managers --allow-domain api.example.com:443 -- npm install"},
			{"for a program: the output, the exit code and what was enforced", "demesne run --json --require full -- make test"},
		},
		flags: runFlags, operand: aCommand, run: cmdRun,
	}
}

func createCommand() command {
	return command{
		name: "create", usage: []string{"[flags]"}, summary: "make a persistent sandbox",
		about: `Makes a sandbox, runs nothing in it, and prints its id. The sandbox exists until demesne rm removes it or
its time is up. With --key it prints the id of the sandbox that has the key. A flag that is left out
takes that sandbox's value. A flag that differs is an error that names the difference, unless --replace
says to remove the sandbox with its files and make a new one.`,
		examples: []example{
			{"one with a name, on a directory of sources", "demesne create --name build --image go --workspace ~/src/app"},
			{"and a command in it", "demesne exec build -- make"},
			{"the same one each time", "demesne create --key $PWD --workspace ."},
			{"with other limits, and without the files it had", "demesne create --key $PWD --workspace . --memory 2g --replace"},
		},
		flags: createFlags, run: cmdCreate,
	}
}

func execCommand() command {
	return command{
		name: "exec", usage: []string{"[flags] ID [--] CMD [ARG…]", "[flags] ID -c TEXT [ARG…]", "[flags] --key KEY -- CMD [ARG…]"},
		summary: "run a command in a sandbox that lives",
		about: `Runs CMD in the sandbox ID, which may be a name, beside whatever else runs there.
Exit codes are those of run. What the command leaves in the background lives on;
its output ends with the command. If demesne is killed (SIGKILL), CMD ends too; with a terminal it goes on. A sandbox that is stopped is started again over its files, with what
it was made with; only its secrets have to be given again, for no file keeps them: stderr names those it was started without.
A sandbox gets secrets when it is made or started. A running one that lacks one of those given here runs nothing.
With --background it is a job, as that of run is; demesne cancel ends the command's process group, and not the sandbox.`,
		examples: []example{
			{"a command", "demesne exec build -- make test"},
			{"a shell", "demesne exec -it build -- bash"},
			{"a job", "demesne wait $(demesne exec --background build -- make test)"},
			{"shell text", `demesne exec build -c 'nohup ./server >/tmp/log 2>&1 &'`},
		},
		flags: execFlags, operand: aSandbox, run: cmdExec,
	}
}

func completionCommand() command {
	return command{
		name: "completion", usage: []string{"bash | zsh | fish"}, summary: "print a completion script for a shell",
		about: "Prints a script that teaches a shell to complete demesne's commands and flags.",
		examples: []example{
			{"in ~/.bashrc", "source <(demesne completion bash)"},
			{"in ~/.zshrc, after compinit", "source <(demesne completion zsh)"},
			{"for fish, once", "demesne completion fish > ~/.config/fish/completions/demesne.fish"},
		},
		flags: noFlags, operand: aWord, words: shells, run: cmdCompletion,
	}
}

// table returns the command's flags and --help, bound to o.
func (c *command) table(o *options) flagSet {
	return append(c.flags(o), flagDef{group: groupGeneral, long: "help", short: 'h', set: on(&o.help),
		help: "explain this command"})
}

func lookup(name string) (*command, error) {
	all := commands()
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i >= 0 {
		return &all[i], nil
	}
	err := fmt.Errorf("command %q: not known", name)
	if n := suggest.Nearest(name, verbs); n != "" {
		return nil, hinted(err, "did you mean %s?", n)
	}
	return nil, hinted(err, "demesne help lists the commands; demesne run -- %s runs one", name)
}
