// Package agent has the verbs agent and research: coding agents in sandboxes, on the user's terminal and project.
//
// Package agents knows the vendors, and plans one execution: program, home, configuration and routes to the model. Package
// terminal finds the project and its git repository, keeps a home for each project, and gets the commits of --branch. This
// package runs the plan by package launch. With --fork it makes attempts on forks of one prepared sandbox. Agents without a
// terminal (agent run, research) are another program, which it starts.
//
// An agent never gets the credential: the routes replace a token on the way, and get new values while it runs. Files that
// programs of this machine execute are read-only in the sandbox. A directory of a session is locked until its process ends
// (flock(2)), so the next session or gc removes what a killed one left.
package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"demesne/agents"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// Agent returns demesne agent.
func Agent() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "agent", Usage: []string{"[flags] NAME [ARG…]", "run [flags] PROMPT", "shim [NAME…] [--vscode] DIR"},
			Summary: "work with a coding agent in a sandbox",
			About: `Starts the coding agent NAME (claude, codex, opencode, gemini, qwen, copilot, pi, or one of your own) in a sandbox. Its program is the one
that this machine has installed, or with --image an image's. Where claude or codex is not installed, demesne
builds an image with it. The working directory, with the git repository around it, is there at its own path. The
agent needs no permission for anything inside. It reaches its model and package registries, and other names that flags
allow.

Your credentials stay outside: the agent has a token that is worth nothing elsewhere, and a proxy replaces it. Your home
directory stays outside too. The agent has a home of its own for each project, below ~/.demesne/agents, which keeps its
sessions and settings.

Files that programs of this machine would execute later, such as git hooks, .envrc and editor tasks, are read-only inside.
At the end stderr names new ones, and other changed files of that kind.

With --branch the agent works on a clone of the repository's last commit. At the end its commits become a new branch of
your repository, which you can review. Nothing else from the clone comes back, not even commits in submodules. With --fork N,
demesne makes one sandbox with the clone, runs the shell text of --setup there, and starts N attempts at one task on forks of
it, at the same time and without a terminal. What the attempts share takes space only once. A table on stdout has the
outcome of each, with its branch.

The agent asks for no permissions, unless you write --permissions ask, or the program's own option such as --permission-mode.
Help, versions and sub-commands that ask no model need neither a credential nor a project.

demesne agent shim writes an executable for each NAME (default all) into DIR, for PATH and for settings that name a program:
it starts demesne agent NAME. It replaces only shims. With --vscode it prints the settings of VS Code's extensions.

demesne agent run gives an agent one task, without a terminal and without this directory: see demesne agent run --help.`,
			Examples: []cmdline.Example{
				{Says: "work with Claude Code on this project", Line: "demesne agent claude"},
				{Says: "continue Codex's last session, and let it reach one more name", Line: "demesne agent --allow-domain api.example.com codex resume --last"},
				{Says: "get the work as a branch", Line: "demesne agent --branch claude"},
				{Says: "start it from PATH and from settings", Line: "demesne agent shim claude ~/.local/share/demesne-shims"},
				{Says: "compare three attempts", Line: "demesne agent --branch --fork 3 claude -p 'make the tests faster'"},
			},
			Operand: cmdline.Argv, Words: []string{"run", "shim", "claude", "codex", "opencode", "gemini"}, Topics: []cmdline.Topic{agentRunTopic()},
		},
		New: func(a *app.App) app.Options { return &agentOptions{Options: launch.Options{App: a}} },
	}
}

func (o *agentOptions) Flags() cmdline.Flags {
	in := *o.SandboxFlags().Long("in")
	require := *o.SandboxFlags().Long("require")
	env := *o.CommandFlags().Long("env")
	mount, cache, socket := *o.Mounts.Flags().Long("mount"), *o.Mounts.Flags().Long("cache"), *o.SandboxFlags().Long("socket")
	set := mount.Set
	mount.Help = "show a file or directory, such as a toolchain, at DST (default its own path); MODE is ro (the default) or rw"
	mount.Set = func(value string) error {
		if strings.HasSuffix(value, ":cow") {
			return errors.New("the mode cow is of demesne run and create")
		}
		return set(value)
	}
	root := o.RootFlags()
	root.Long("image").Help = "take the agent's program and the root filesystem from an image: a name, a reference, or dir:ROOTFS (default this machine's; without an installation, an image that demesne builds)"
	return slices.Concat(
		app.ConfigFlag(),
		cmdline.Flags{
			{Group: app.GroupSandbox, Long: "branch", Set: cmdline.On(&o.branch), Help: "work on a clone, and bring the commits back as a branch"},
			{Group: app.GroupSandbox, Long: "fork", Arg: "N", Set: o.setForks, Help: "with --branch: make N attempts at one task"},
			{Group: app.GroupSandbox, Long: "setup", Arg: "COMMAND", Set: cmdline.Text(&o.setup), Help: "with --branch: first run this shell text in the clone, such as 'npm ci'; with --fork only once for all attempts"},
			{Group: app.GroupSandbox, Long: "fresh", Set: cmdline.On(&o.fresh), Help: "use an empty home that is removed at the end"},
			{Group: app.GroupSandbox, Long: "settings", Arg: "LIST", Set: o.setSettings,
				Help: "copy parts of your own settings of the agent into its home: skills, commands, memory, separated by commas"},
			{Group: app.GroupSandbox, Long: "devcontainer", Arg: "DIR", Optional: true, Complete: cmdline.Directory, Set: o.SetDevcontainer,
				Help: "take the image and the variables of a devcontainer.json (default the working directory's); the image must have the agent's program"},
			{Group: app.GroupSandbox, Long: "permissions", Arg: "WORD", Words: permissionWords, Set: o.setPermissions,
				Help: "skip the program's permission prompts (the default), or ask; the program's own options come first"},
			{Group: app.GroupSandbox, Long: "acp", Set: cmdline.On(&o.acp), Help: "speak the Agent Client Protocol on stdin and stdout, in this directory: see demesne acp"},
			in, mount, cache, o.Mounts.ToolchainFlag(), socket, o.ssh.Flag(), require, env,
		},
		app.DockerFlag(&o.docker), root, o.BuildFlag(), o.Network.Flags(), o.Network.SecretFlags(), o.Network.AskFlags(), o.LimitFlags())
}

// permissionWords are the values of --permissions.
var permissionWords = []string{"skip", "ask"}

func (o *agentOptions) setPermissions(s string) error {
	var word string
	err := cmdline.Word(&word, permissionWords)(s)
	o.asks = word == "ask"
	return err
}

// setSettings parses a list of parts.
func (o *agentOptions) setSettings(s string) error {
	for part := range strings.SplitSeq(s, ",") {
		if err := cmdline.OneOf(part, agents.SettingNames); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
		o.settings = append(o.settings, part)
	}
	return nil
}

// Run runs an agent's program on the terminal.
func (o *agentOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("no agent given"), "demesne agent claude, or demesne agent codex")
	}
	if args[0] == "run" {
		return executeAgent(args)
	}
	if o.setup != "" && !o.branch {
		return 0, text.Hinted(errors.New("--setup: needs --branch: it prepares the clone"), "demesne agent --branch --setup 'npm ci' %s", args[0])
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return 0, fmt.Errorf("find home directory: %w", err)
	}
	if args[0] == "shim" {
		catalog, err := agents.Open(agents.Options{Env: o.Getenv, Home: home})
		if err != nil {
			return 0, err
		}
		return o.shim(catalog, args[1:])
	}
	if err := o.OpenDevcontainer(nil); err != nil {
		return 0, err
	}
	if o.forks != 0 {
		if o.docker {
			return 0, errors.New("--docker: cannot be combined with --fork")
		}
		if o.ssh.Given() {
			return 0, errors.New("--ssh-agent: cannot be combined with --fork: attempts have no terminal")
		}
		return o.forkAgent(home, args)
	}
	t, err := o.newAgentTerminal(home, args)
	if err != nil {
		return 0, err
	}
	defer t.close()
	return t.run()
}
