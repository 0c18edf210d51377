package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"demesne/agents"
	"demesne/agents/agentcmd"
	"demesne/agents/terminal"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/images/imageref"
	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

type agentOptions struct {
	launch.Options
	docker        bool
	ssh           app.SSHAgent
	branch, fresh bool
	asks, acp     bool // see agents.Call
	forks         int
	setup, stamp  string   // stamp: of an attempt
	settings      []string // see agents.AddSettings
}

// agentHome is $HOME of an agent's program at a terminal.
const agentHome = agents.HomeDir

// agentTerminal is an agent's program on the user's terminal.
type agentTerminal struct {
	o       *agentOptions
	agent   *agents.Agent
	project *terminal.Project
	launch  *agents.Launch
	dir     *terminal.Session
	user    string // the user's home
	home    string // directory of the host; empty: the sandbox's own files have the home
	config  string // directory of the host for the files of the launch
	branch  *terminal.Branch
	call    agents.Call
	informs bool   // no request to a model: no credential is needed
	tell    func() // names the files that the sandbox left, and that programs of this machine would execute
	record  string // file with a line for each request to the model
}

func (o *agentOptions) newAgentTerminal(home string, args []string) (_ *agentTerminal, err error) {
	catalog, err := agents.Open(agents.Options{Env: o.Getenv, Home: home, Post: post})
	if err != nil {
		return nil, err
	}
	t := &agentTerminal{o: o, user: home, tell: func() {}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err = t.findAgent(catalog, args); err != nil {
		return nil, err
	}
	if t.project, err = terminal.Find(cmp.Or(t.call.Dir, "."), home); err != nil && t.informs && !o.branch {
		t.project, o.fresh, err = &terminal.Project{Dir: agentHome}, true, nil
	}
	if err != nil {
		return nil, err
	}
	if t.dir, err = terminal.Open(home); err != nil {
		return nil, err
	}
	if t.home, err = t.openHome(home); err != nil {
		return nil, err
	}
	o.Interactive = o.stamp == ""
	o.TTY = o.Interactive && stream.IsTerminal(o.Stdin) && stream.IsTerminal(o.Stdout)
	if n := &o.Network; n.Mode == "" && n.File == "" && !n.Learn && !t.flagOnly() {
		n.Mode = runner.PackageManagers
	}
	if t.launch, err = t.agent.Interactive(agents.Task{Dir: t.project.Dir, Egress: o.Network.Mode}, t.call, agentHome); err != nil {
		return nil, t.hinted(err)
	}
	if t.informs {
		t.launch.Routes = nil
	}
	if o.branch {
		t.branch, err = t.project.Branch(t.agent.Provider.Name + "-" + cmp.Or(o.stamp, branchStamp()))
	}
	return t, errors.Join(err, t.copySettings(), t.writeConfig(), t.seed())
}

// copySettings adds the chosen parts of the user's own settings to the files of the home, and tells which names it left out.
func (t *agentTerminal) copySettings() error {
	if len(t.o.settings) == 0 || t.informs {
		return nil
	}
	left, err := t.agent.AddSettings(t.launch, t.user, t.o.settings)
	if len(left) > 0 {
		t.o.Say(fmt.Sprintf("agent: --settings left out %d links and hidden names, such as %s", len(left), text.SafeLine(left[0])))
	}
	return err
}

// flagOnly reports whether the program only prints help or its version. It gets no network, which takes time to make.
func (t *agentTerminal) flagOnly() bool { return t.informs && strings.HasPrefix(t.call.Args[0], "-") }

// findAgent finds the agent of a command, and the root filesystem for it: the image that the caller chose, the image of the
// provider's row, or the host's own, on which an installation works. $DEMESNE_DEFAULT_IMAGE is ignored.
func (t *agentTerminal) findAgent(catalog *agents.Catalog, args []string) (err error) {
	o := t.o
	row, err := catalog.Row(args[0])
	if err != nil {
		return t.hinted(err)
	}
	t.call = row.NewCall(args[1:])
	t.call.Asks, t.call.ACP = o.asks, o.acp
	if t.informs = row.Informs(t.call); t.informs {
		catalog = catalog.Bare()
	}
	if t.agent, err = catalog.In(o.Image.Given).Find(args[0]); err != nil {
		return t.hinted(err)
	}
	if image := cmp.Or(t.agent.Image(), string(imageref.Host)); o.Image.Kind == "" || o.Image.Kind == imageref.Host {
		if o.Image, err = session.ParseImage(image); err != nil {
			err = fmt.Errorf("image %q: %w", image, err)
		}
	}
	return err
}

// hinted adds to an error what the user can do.
func (t *agentTerminal) hinted(err error) error {
	switch {
	case errors.Is(err, agents.ErrNoProgram):
		return text.Hinted(err, agentcmd.ProgramHint)
	case errors.Is(err, agents.ErrNoAdapter):
		return text.Hinted(err, "npm install --global @agentclientprotocol/%s", t.agent.Provider.ACP.Command)
	}
	return text.Hinted(err, "docs/reference/agents.md lists the agents, and the variables and files that hold their credentials")
}

// rootImage returns the name of the image that has the program, or "".
func (t *agentTerminal) rootImage() string {
	if t.o.Image.Kind == imageref.Host {
		return ""
	}
	return t.o.Image.Given
}

// openHome makes the agent's home: this project's, or a temporary one. An attempt has no home outside its sandbox.
func (t *agentTerminal) openHome(home string) (string, error) {
	switch {
	case t.o.stamp != "":
		return "", nil
	case t.o.fresh:
		return t.dir.Mkdir("home")
	}
	return t.project.KeptHome(home, t.agent.Provider.Name)
}

// seed writes the files that the program expects in its home.
func (t *agentTerminal) seed() error {
	at := t.home
	if at == "" {
		at = filepath.Join(t.config, terminal.SeedDir)
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
	if t.config, err = t.dir.Mkdir("config"); err != nil {
		return err
	}
	t.record = filepath.Join(t.dir.Path, "requests.jsonl")
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

func (t *agentTerminal) close() { t.dir.Close() }

// spec returns the sandbox: the project with its protected files, the home, and the program.
func (t *agentTerminal) spec() (runner.Spec, error) {
	spec, err := t.o.Spec()
	if err != nil {
		return spec, err
	}
	spec.User = t.launch.User
	if t.branch != nil {
		spec.Inputs = append(spec.Inputs, t.branch.Input())
	} else {
		spec.Mounts = t.project.Mounts()
	}
	placed, err := t.o.Mounts.Place(t.o.App, &spec)
	if err != nil {
		return spec, err
	}
	t.tell = placed.Tell
	t.tellServers(spec.Mounts)
	if t.home != "" {
		spec.Mounts = append(spec.Mounts, runner.Mount{Source: t.home, Target: agentHome})
	}
	spec.Mounts = append(spec.Mounts, t.configMount())
	spec.Mounts = append(spec.Mounts, t.launch.Mounts...)
	return spec, nil
}

// tellServers names what the project's MCP servers need of the user's home, and the sandbox lacks.
func (t *agentTerminal) tellServers(seen []runner.Mount) {
	if t.informs || !slices.Contains(t.agent.Provider.Project, ".mcp.json") {
		return
	}
	var dirs []string
	for _, m := range seen {
		dirs = append(dirs, m.Target)
	}
	for _, m := range t.project.MissingServers(t.user, dirs, func(name string) string {
		path, _ := exec.LookPath(name)
		return path
	}) {
		t.o.Say(fmt.Sprintf("agent: MCP server %s of .mcp.json needs %s, which the sandbox does not have: --mount %[2]s shows it", text.SafeLine(m.Server), text.SafeLine(m.Path)))
	}
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
		argv = t.branch.Wrap(t.o.setup, argv)
		t.branch.Tell(t.o.Say)
	}
	j, code, err := t.execute(argv, func(j *launch.Execution) error { return t.start(j, spec, r) })
	if err == nil && t.branch != nil {
		err = t.branch.Fetch(t.o.Say, j.Result)
	}
	t.tell()
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
	var author []string
	if !t.informs {
		author = t.project.Identity(t.agent.Provider.Name)
	}
	t.o.Variables = slices.Concat(author, colors(t.o.App), t.launch.Env, t.o.Variables)
	t.o.Workdir = t.project.Dir
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
	var next time.Time
	if !t.informs {
		headers, at, err := t.agent.Renew(j.Sig.Ctx)
		if err != nil {
			return err
		}
		t.launch.Authorize(headers)
		next = at
	}
	s := t.o.Session(nil)
	defer s.Close()
	p := r.Progress()
	defer p.Done()
	c := r.CreateOptions(spec)
	c.Docker = t.o.docker
	stopAgent, err := t.o.ssh.Serve(t.o.App, t.dir.Path, &c.Spec)
	if err != nil {
		return err
	}
	defer stopAgent()
	c.Egress.Routes = t.launch.Routes
	cb := t.o.Callbacks(j.Sig, &j.Stages, p)
	if !t.informs {
		t.renewing(&cb, j, s, next)
	}
	opts := j.RunOptions()
	opts.KeepEmpty = t.branch != nil
	done, err := s.Run(j.Sig.Ctx, c, opts, cb)
	return j.Ended(done, t.agent.Provider.Explain(err, t.rootImage(), j.Cmd.Argv[0]))
}

// renewing makes the callbacks start to renew the credential, once the sandbox exists.
func (t *agentTerminal) renewing(cb *session.Callbacks, j *launch.Execution, s *session.Service, next time.Time) {
	made := cb.Made
	cb.Made = func(b *session.Sandbox) {
		made(b)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			<-j.Over
			cancel()
		}()
		records := agents.Records{Path: t.record}
		r := &agents.Renewal{Agent: t.agent, Sessions: s, Sandbox: b.ID, Refused: func() (refused bool) {
			records.Read(func(u runner.UsageRecord) { refused = refused || u.Status == 401 })
			return refused
		}}
		go r.Run(ctx, next)
	}
}
