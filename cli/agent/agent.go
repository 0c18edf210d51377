// Package agent has the verbs agent and research: coding agents in sandboxes, on the user's terminal and project.
//
// Package agents knows the vendors, and plans one execution: program, home, configuration and routes to the model. This
// package finds the project and its git repository, keeps a home for each project, and runs the plan by package launch. With
// --branch the agent works on a clone, and only a bundle of commits comes back: see receive. With --fork it makes attempts on
// forks of one prepared sandbox. Agents without a terminal (agent run, research) are another program, which it starts.
//
// An agent never gets the credential: the routes replace a token on the way, and renew sends the routes new values. Files that
// programs of this machine execute are read-only in the sandbox. A directory of a session is locked until its process ends
// (flock(2)), so the next session or gc removes what a killed one left.
package agent

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/agents"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/mounts"
	"demesne/cli/stream"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/mcp/install"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// Agent returns demesne agent.
func Agent() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "agent", Usage: []string{"[flags] NAME [ARG…]", "run [flags] PROMPT"},
			Summary: "work with a coding agent in a sandbox",
			About: `Starts the coding agent NAME (claude, codex, opencode, gemini, qwen, copilot, pi, or one of your own) in a sandbox. Its program is the one
that this machine has installed, or with --image the one of an image. Where claude or codex is not installed, demesne
builds an image that has it. The working directory, with the git repository around it, is there at its own path. The
agent needs no permission for anything inside. It reaches its model and package registries, and other names that flags
allow.

Your credentials stay outside: the agent has a token that is worth nothing elsewhere, and a proxy replaces it. Your home
directory stays outside too. The agent has a home of its own for each project, below ~/.demesne/agents, which keeps its
sessions and settings.

Files that programs of this machine would execute later, such as git hooks, .envrc and editor tasks, are read-only inside.
At the end stderr names new ones, and other changed files of that kind.

With --branch the agent works on a clone of the repository's last commit. At the end its commits become a new branch of
your repository, which you can review. Nothing else of the clone comes back, not even commits in submodules. With --fork N,
demesne makes one sandbox with the clone, runs the shell text of --setup there, and starts N attempts at one task on forks of
it, at the same time and without a terminal. What the attempts share takes space only once. A table on stdout has the
outcome of each, with its branch.

demesne agent run gives an agent one task, without a terminal and without this directory: see demesne agent run --help.`,
			Examples: []cmdline.Example{
				{Says: "work with Claude Code on this project", Line: "demesne agent claude"},
				{Says: "continue Codex's last session, and let it reach one more name", Line: "demesne agent --allow-domain api.example.com codex resume --last"},
				{Says: "get the work as a branch", Line: "demesne agent --branch claude"},
				{Says: "compare three attempts", Line: "demesne agent --branch --fork 3 claude -p 'make the tests faster'"},
			},
			Operand: cmdline.Argv, Words: []string{"run", "claude", "codex", "opencode", "gemini"}, Topics: []cmdline.Topic{agentRunTopic()},
		},
		New: func(a *app.App) app.Options { return &agentOptions{Options: launch.Options{App: a}} },
	}
}

type agentOptions struct {
	launch.Options
	branch, fresh bool
	forks         int
	setup, stamp  string // stamp: of an attempt
}

func (o *agentOptions) Flags() cmdline.Flags {
	in := *o.SandboxFlags().Long("in")
	require := *o.SandboxFlags().Long("require")
	env := *o.CommandFlags().Long("env")
	root := o.RootFlags()
	root.Long("image").Help = "take the agent's program and the root filesystem from an image: a name, a reference, or dir:ROOTFS (default this machine's; without an installation, an image that demesne builds)"
	return slices.Concat(
		cmdline.Flags{
			{Group: app.GroupSandbox, Long: "branch", Set: cmdline.On(&o.branch), Help: "work on a clone, and bring the commits back as a branch"},
			{Group: app.GroupSandbox, Long: "fork", Arg: "N", Set: o.setForks, Help: "with --branch: make N attempts at one task"},
			{Group: app.GroupSandbox, Long: "setup", Arg: "COMMAND", Set: cmdline.Text(&o.setup), Help: "with --branch: first run this shell text in the clone, such as 'npm ci'; with --fork only once for all attempts"},
			{Group: app.GroupSandbox, Long: "fresh", Set: cmdline.On(&o.fresh), Help: "use an empty home that is removed at the end"},
			{Group: app.GroupSandbox, Long: "devcontainer", Arg: "DIR", Optional: true, Complete: cmdline.Directory, Set: o.SetDevcontainer,
				Help: "take the image and the variables of a devcontainer.json (default the working directory's); the image must have the agent's program"},
			in, require, env,
		},
		root, o.Network.Flags(), o.Network.SecretFlags(), o.Network.AskFlags(), o.LimitFlags())
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
	if err := o.OpenDevcontainer(nil); err != nil {
		return 0, err
	}
	if o.forks != 0 {
		return o.forkAgent(home, args)
	}
	t, err := o.newAgentTerminal(home, args)
	if err != nil {
		return 0, err
	}
	defer t.close()
	return t.run()
}

// agentHome is $HOME of an agent's program at a terminal.
const agentHome = agents.HomeDir

// agentTerminal is an agent's program on the user's terminal.
type agentTerminal struct {
	o       *agentOptions
	agent   *agents.Agent
	project *project
	launch  *agents.Launch
	dir     *sessionDir
	home    string // directory of the host; empty: the sandbox's own files have the home
	config  string // directory of the host for the files of the launch
	branch  *branch
	watch   mounts.Watch
	record  string // file with a line for each request to the model
}

func (o *agentOptions) newAgentTerminal(home string, args []string) (_ *agentTerminal, err error) {
	catalog, err := agents.Open(agents.Options{Env: o.Getenv, Home: home, Post: post})
	if err != nil {
		return nil, err
	}
	t := &agentTerminal{o: o, watch: mounts.Watch{Verb: "agent"}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err = t.findAgent(catalog, args[0]); err != nil {
		return nil, err
	}
	if t.project, err = findProject(home); err != nil {
		return nil, err
	}
	if t.dir, err = openSession(home); err != nil {
		return nil, err
	}
	if t.home, err = t.openHome(home); err != nil {
		return nil, err
	}
	o.Interactive = o.stamp == ""
	o.TTY = o.Interactive && stream.IsTerminal(o.Stdin) && stream.IsTerminal(o.Stdout)
	if n := &o.Network; n.Mode == "" && n.File == "" && !n.Learn {
		n.Mode = "package-managers"
	}
	t.launch = t.agent.Interactive(agents.Task{Dir: t.project.dir, Egress: o.Network.Mode}, args[1:], agentHome)
	if o.branch {
		t.branch, err = newBranch(t.project, t.agent.Provider.Name+"-"+cmp.Or(o.stamp, branchStamp()))
	}
	return t, errors.Join(err, t.writeConfig(), t.seed())
}

// findAgent finds the agent of a command, and the root filesystem for it: the image that the caller chose, that of the
// provider's row, or the host's own, on which an installation works. $DEMESNE_DEFAULT_IMAGE is ignored.
func (t *agentTerminal) findAgent(catalog *agents.Catalog, name string) (err error) {
	o := t.o
	t.agent, err = catalog.In(o.Image.Given).Find(name)
	switch {
	case errors.Is(err, agents.ErrNoProgram):
		return text.Hinted(err, install.ProgramHint)
	case err != nil:
		return text.Hinted(err, "docs/reference/agents.md lists the agents, and the variables and files that hold their credentials")
	}
	if image := cmp.Or(t.agent.Image(), string(imageref.Host)); o.Image.Kind == "" || o.Image.Kind == imageref.Host {
		if o.Image, err = session.ParseImage(image); err != nil {
			err = fmt.Errorf("image %q: %w", image, err)
		}
	}
	return err
}

// rootImage returns the name of the image that has the program, or "".
func (t *agentTerminal) rootImage() string {
	if t.o.Image.Kind == imageref.Host {
		return ""
	}
	return t.o.Image.Given
}

// openHome makes the agent's home: the one of this project, or a temporary one. An attempt has none outside.
func (t *agentTerminal) openHome(home string) (string, error) {
	switch {
	case t.o.stamp != "":
		return "", nil
	case t.o.fresh:
		return t.dir.mkdir("home")
	}
	return t.project.keptHome(home, t.agent.Provider.Name)
}

// seed writes the files that the program expects in its home.
func (t *agentTerminal) seed() error {
	at := t.home
	if at == "" {
		at = filepath.Join(t.config, seedDir)
		if err := os.Mkdir(at, 0o700); err != nil {
			return fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
		}
	}
	if !t.o.fresh && t.home != "" {
		lock, err := lockHome(at)
		if err != nil {
			return err
		}
		defer lock.Close()
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
	}
	defer root.Close()
	if err := t.launch.Seed(root); err != nil {
		return text.Hinted(err, "an earlier session changed %s; remove it, or use --fresh", text.SafeLine(at))
	}
	return nil
}

// lockHome excludes other sessions that seed a kept home, until the file is closed. Several sessions may use one home at
// once, as without sandboxes: the programs guard their own files. The lock is on the directory above, which no sandbox
// can open.
func lockHome(path string) (*os.File, error) {
	above, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = flock.Lock(above, flock.Exclusive)
	}
	if err != nil {
		return nil, fmt.Errorf("lock the agent's home: %w", fsutil.Reason(err))
	}
	return above, nil
}

// writeConfig writes the files that the program reads at [agents.ConfigDir].
func (t *agentTerminal) writeConfig() (err error) {
	if t.config, err = t.dir.mkdir("config"); err != nil {
		return err
	}
	t.record = filepath.Join(t.dir.path, "requests.jsonl")
	for i := range t.launch.Routes {
		t.launch.Routes[i].Record = t.record
	}
	for name, text := range t.launch.Config {
		if err := os.WriteFile(filepath.Join(t.config, name), text, 0o600); err != nil {
			return fmt.Errorf("write the agent's configuration: %w", err)
		}
	}
	return nil
}

func (t *agentTerminal) close() { t.dir.close() }

// spec returns the sandbox: the project with its protected files, the home, and the program.
func (t *agentTerminal) spec() (runner.Spec, error) {
	spec, err := t.o.Spec()
	if err != nil {
		return spec, err
	}
	spec.User = t.launch.User
	if t.branch != nil {
		spec.Inputs = append(spec.Inputs, t.branch.input())
	} else {
		spec.Mounts = t.project.mounts()
		own := spec.Mounts
		covers, err := client.CoverHome(own...)
		if err != nil {
			return spec, err
		}
		spec.Mounts = append(spec.Mounts, covers...)
		for _, m := range own {
			protected, err := t.watch.Protect(m, own)
			if err != nil {
				return spec, err
			}
			spec.Mounts = append(spec.Mounts, protected...)
		}
	}
	if t.home != "" {
		spec.Mounts = append(spec.Mounts, runner.Mount{Source: t.home, Target: agentHome})
	}
	spec.Mounts = append(spec.Mounts, t.configMount())
	spec.Mounts = append(spec.Mounts, t.launch.Mounts...)
	return spec, nil
}

func (t *agentTerminal) configMount() runner.Mount {
	return runner.Mount{Source: t.config, Target: agents.ConfigDir, ReadOnly: true}
}

// Run runs the program until it ends, and reports what it left.
func (t *agentTerminal) run() (int, error) {
	spec, err := t.spec()
	if err != nil {
		return 0, err
	}
	r, err := t.o.NewRoot()
	if err != nil {
		return 0, err
	}
	argv := t.launch.Argv
	if t.branch != nil {
		argv = t.branch.wrap(t.o.setup, argv)
		t.branch.tell(t.o.App)
	}
	j, code, err := t.execute(argv, func(j *launch.Execution) error { return t.start(j, spec, r) })
	if err == nil && t.branch != nil {
		err = t.branch.fetch(t.o.App, j.Result)
	}
	t.watch.Tell(&t.o.Console)
	if m := t.meter(); m.Requests() > 0 && stream.IsTerminal(t.o.Stderr) {
		t.o.Say(fmt.Sprintf("agent: %d requests to the model, cost: %s", m.Requests(), costText(m)))
	}
	t.tellContinue()
	return code, err
}

// tellContinue says how to continue the session. The home keeps it, unless it was a temporary one.
func (t *agentTerminal) tellContinue() {
	p := t.agent.Provider
	if len(p.Continue) == 0 || t.o.fresh || !t.o.TTY {
		return
	}
	flags := ""
	if t.o.branch {
		flags = "--branch "
	}
	fmt.Fprintf(t.o.Stderr, "hint: to continue this session: demesne agent %s%s %s\n", flags, p.Command, text.SafeLine(strings.Join(p.Continue, " ")))
}

// execute runs a command of the session by start, and reports how it ended.
func (t *agentTerminal) execute(argv []string, start func(*launch.Execution) error) (j *launch.Execution, code int, err error) {
	t.o.Variables = slices.Concat(t.project.identity(t.agent.Provider.Name), colors(t.o.App), t.launch.Env, t.o.Variables)
	t.o.Workdir = t.project.dir
	if t.branch != nil {
		t.o.Workdir = "/workspace"
	}
	if j, err = t.o.NewExecution(argv); err != nil {
		return nil, 0, err
	}
	defer j.Sig.Stop()
	code, err = j.Finish(start(j))
	return j, code, err
}

// colors returns the caller's variables that describe the colours of the terminal, beside TERM.
func colors(a *app.App) (env []string) {
	for _, name := range []string{"COLORTERM", "COLORFGBG", "NO_COLOR"} {
		if value := a.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// start authorizes the routes, and runs the command.
func (t *agentTerminal) start(j *launch.Execution, spec runner.Spec, r *launch.Root) error {
	headers, next, err := t.agent.Renew(j.Sig.Ctx)
	if err != nil {
		return err
	}
	t.launch.Authorize(headers)
	s := t.o.Session(nil)
	defer s.Close()
	p := r.Progress()
	defer p.Done()
	c := r.CreateOptions(spec)
	c.Egress.Routes = t.launch.Routes
	cb := t.o.Callbacks(j.Sig, &j.Stages, p)
	t.renewing(&cb, j, s, next)
	opts := j.RunOptions()
	opts.KeepEmpty = t.branch != nil
	done, err := s.Run(j.Sig.Ctx, c, opts, cb)
	return j.Ended(done, install.ProgramError(err, &t.agent.Provider, t.rootImage(), j.Cmd.Argv[0]))
}

// renewing makes the callbacks start to renew the credential, once the sandbox exists.
func (t *agentTerminal) renewing(cb *session.Callbacks, j *launch.Execution, s *session.Service, next time.Time) {
	made := cb.Made
	cb.Made = func(b *session.Sandbox) {
		made(b)
		go t.renew(j, s, b.ID, next)
	}
}
