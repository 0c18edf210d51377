package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"demesne/agents"
	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/session"
	"demesne/images/oci"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
)

func agentCommand() command {
	return command{
		Command: cli.Command{
			Name: "agent", Usage: []string{"[flags] NAME [ARG…]", "run [flags] PROMPT"},
			Summary: "work with a coding agent in a sandbox",
			About: `Starts the coding agent NAME of this machine (claude, codex, opencode, gemini, or one of your own) in a sandbox. The
working directory, with the git repository around it, is there at its own path. The agent needs no permission for
anything inside. It reaches its model and package registries, and other names that flags allow.

Your credentials stay outside: the agent has a token that is worth nothing elsewhere, and a proxy replaces it. Your home
directory stays outside too. The agent has a home of its own for each project, below ~/.demesne/agents, which keeps its
sessions and settings.

Files that programs of this machine would execute later, such as git hooks, .envrc and editor tasks, are read-only inside.
At the end stderr names new ones, and other changed files of that kind.

With --branch the agent works on a clone of the repository's last commit. At the end its commits become a new branch of
your repository, which you can review. Nothing else of the clone comes back, not even commits in submodules. With --fork N,
N attempts at one task start at the same time without a terminal, each on a clone and with an empty home. A table on stdout
has the outcome of each, with its branch.

demesne agent run gives an agent one task, without a terminal and without this directory: see demesne agent run --help.`,
			Examples: []cli.Example{
				{Says: "work with Claude Code on this project", Line: "demesne agent claude"},
				{Says: "continue Codex's last session, and let it reach one more name", Line: "demesne agent --allow-domain api.example.com codex resume --last"},
				{Says: "get the work as a branch", Line: "demesne agent --branch claude"},
				{Says: "compare three attempts", Line: "demesne agent --branch --fork 3 claude -p 'make the tests faster'"},
			},
			Operand: cli.Argv, Words: []string{"run", "claude", "codex", "opencode", "gemini"}, Topics: []cli.Topic{agentRunTopic()},
		},
		flags: agentFlags, run: cmdAgent,
	}
}

func agentFlags(o *options) cli.Flags {
	in := *sandboxFlags(o).Long("in")
	require := *sandboxFlags(o).Long("require")
	env := *commandFlags(&o.processOptions).Long("env")
	return slices.Concat(
		cli.Flags{
			{Group: groupSandbox, Long: "branch", Set: cli.On(&o.branch), Help: "work on a clone, and bring the commits back as a branch"},
			{Group: groupSandbox, Long: "fork", Arg: "N", Set: o.setForks, Help: "with --branch: make N attempts at one task"},
			{Group: groupSandbox, Long: "fresh", Set: cli.On(&o.fresh), Help: "use an empty home that is removed at the end"},
			in, require, env,
		},
		rootFlags(&o.rootOptions), networkFlags(&o.network), secretFlags(&o.network), askFlag(&o.network), limitFlags(&o.isolationOptions))
}

// cmdAgent runs an agent's program on the terminal.
func cmdAgent(a *app, o *options, args []string) (int, error) {
	if len(args) == 0 {
		return 0, hinted(errors.New("no agent given"), "demesne agent claude, or demesne agent codex")
	}
	if args[0] == "run" {
		return executeAgent(args)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return 0, fmt.Errorf("find home directory: %w", err)
	}
	if o.forks != 0 {
		return a.forkAgent(o, home, args)
	}
	t, err := a.newAgentTerminal(o, home, args)
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
	app     *app
	o       *options
	agent   *agents.Agent
	project *project
	launch  *agents.Launch
	home    string // of the host
	config  string // directory of the host for the files of the launch
	branch  *branch
	watch   watch
	remove  []string // at the end
	record  string   // file with a line for each request to the model
}

func (a *app) newAgentTerminal(o *options, home string, args []string) (_ *agentTerminal, err error) {
	catalog, err := agents.Open(agents.Options{Env: a.getenv, Home: home, Post: post})
	if err != nil {
		return nil, err
	}
	t := &agentTerminal{app: a, o: o, watch: watch{verb: "agent"}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.agent, err = catalog.Find(args[0]); err != nil {
		return nil, hinted(err, "docs/guide/agents.md lists the agents, and the variables and files that hold their credentials")
	}
	if t.project, err = findProject(home); err != nil {
		return nil, err
	}
	if t.home, err = t.openHome(); err != nil {
		return nil, err
	}
	o.tty = isTerminal(a.stdin) && isTerminal(a.stdout)
	o.interactive = o.stamp == ""
	if n := &o.network; n.mode == "" && n.file == "" && !n.learn {
		n.mode = "package-managers"
	}
	task := agents.Task{Dir: t.project.dir, Image: o.image.Kind != "" && o.image.Stored()}
	if t.launch, err = t.agent.Interactive(task, args[1:], agentHome); err != nil {
		return nil, hinted(err, "install %s so that PATH has it, or give an image that has it: --image NAME", t.agent.Provider.Command)
	}
	if o.branch {
		t.branch, err = newBranch(t.project, t.agent.Provider.Name+"-"+cmp.Or(o.stamp, branchStamp()))
	}
	return t, errors.Join(err, t.seed(), t.writeConfig())
}

// openHome makes the agent's home: the one of this project, or a temporary one.
func (t *agentTerminal) openHome() (string, error) {
	if !t.o.fresh {
		return t.project.keptHome(t.agent.Provider.Name)
	}
	dir, err := os.MkdirTemp("", "demesne-agent-")
	if err != nil {
		return "", fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
	}
	t.remove = append(t.remove, dir)
	return dir, nil
}

// seed writes the files that the program expects in its home.
func (t *agentTerminal) seed() error {
	root, err := os.OpenRoot(t.home)
	if err != nil {
		return fmt.Errorf("make the agent's home: %w", fsutil.Reason(err))
	}
	defer root.Close()
	if err := t.launch.Seed(root); err != nil {
		return hinted(err, "an earlier session changed %s; remove it, or use --fresh", text.SafeLine(t.home))
	}
	return nil
}

// writeConfig writes the files that the program reads at [agents.ConfigDir].
func (t *agentTerminal) writeConfig() (err error) {
	if t.config, err = os.MkdirTemp("", "demesne-agent-"); err != nil {
		return fmt.Errorf("write the agent's configuration: %w", fsutil.Reason(err))
	}
	t.remove = append(t.remove, t.config)
	records, err := os.MkdirTemp("", "demesne-agent-")
	if err != nil {
		return fmt.Errorf("record the agent's requests: %w", fsutil.Reason(err))
	}
	t.remove, t.record = append(t.remove, records), filepath.Join(records, "requests.jsonl")
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

func (t *agentTerminal) close() {
	for _, dir := range t.remove {
		os.RemoveAll(dir)
	}
}

// spec returns the sandbox: the project with its protected files, the home, and the program.
func (t *agentTerminal) spec() (runner.Spec, error) {
	spec, err := t.o.spec()
	if err != nil {
		return spec, err
	}
	spec.User = t.launch.User
	if t.branch != nil {
		spec.Inputs = append(spec.Inputs, t.branch.input())
	} else {
		spec.Mounts = t.project.mounts()
		own := spec.Mounts
		for _, m := range own {
			protected, err := t.watch.protect(m, own)
			if err != nil {
				return spec, err
			}
			spec.Mounts = append(spec.Mounts, protected...)
		}
	}
	spec.Mounts = append(spec.Mounts, runner.Mount{Source: t.home, Target: agentHome},
		runner.Mount{Source: t.config, Target: agents.ConfigDir, ReadOnly: true})
	spec.Mounts = append(spec.Mounts, t.launch.Mounts...)
	return spec, nil
}

// run runs the program until it ends, and reports what it left.
func (t *agentTerminal) run() (int, error) {
	spec, err := t.spec()
	if err != nil {
		return 0, err
	}
	r, err := t.app.newRoot(t.o)
	if err != nil {
		return 0, err
	}
	argv := t.launch.Argv
	if t.branch != nil {
		argv = t.branch.wrap(argv)
	}
	t.o.env = slices.Concat(t.project.identity(t.agent.Provider.Name), t.app.colors(), t.launch.Env, t.o.env)
	t.o.workdir = t.project.dir
	if t.branch != nil {
		t.branch.tell(t.app)
		t.o.workdir = "/workspace"
	}
	j, err := t.app.newExecution(t.o, argv)
	if err != nil {
		return 0, err
	}
	code, err := j.finish(t.start(j, spec, r))
	if err == nil && t.branch != nil {
		err = t.branch.fetch(t.app, j.result)
	}
	t.watch.tell(&t.app.console)
	if cost, requests := t.cost(); requests > 0 && isTerminal(t.app.stderr) {
		t.app.say(fmt.Sprintf("agent: %d requests to the model, about $%.4f", requests, cost))
	}
	return code, err
}

// colors returns the caller's variables that describe the colours of the terminal, beside TERM.
func (a *app) colors() (env []string) {
	for _, name := range []string{"COLORTERM", "COLORFGBG", "NO_COLOR"} {
		if value := a.getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// start authorizes the routes, and runs the command.
func (t *agentTerminal) start(j *execution, spec runner.Spec, r *root) error {
	headers, next, err := t.agent.Renew(j.sig.ctx)
	if err != nil {
		return err
	}
	t.launch.Authorize(headers)
	s := t.app.session(&t.o.network)
	defer s.Close()
	p := r.progress()
	defer p.done()
	c := r.createOptions(spec)
	c.Egress.Routes = t.launch.Routes
	cb := t.app.callbacks(t.o, j.sig, &j.stages, p)
	made := cb.Made
	cb.Made = func(b *session.Sandbox) {
		made(b)
		go t.renew(j, s, b.ID, next)
	}
	opts := j.runOptions()
	opts.Argv = func(oci.Config) ([]string, error) { return j.cmd.Argv, nil }
	opts.KeepEmpty = t.branch != nil
	return j.ended(s.Run(j.sig.ctx, c, opts, cb))
}
