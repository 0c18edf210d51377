package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

// runOptions are the options of run and exec.
type runOptions struct {
	launch.Options
	codeOptions
	stepOptions
	background, queue bool
	manifest          bool // of out
}

func (o *runOptions) run(args []string) (int, error) {
	r, err := o.newRun(args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		return jobTool{o.App}.start(o)
	}
	return r.finish()
}

// command is a command of run or exec that passed every check that needs no sandbox.
type command struct {
	*launch.Execution
	o      *runOptions
	script *script         // nil: the command is no script
	tool   *runner.Command // installs dependencies first; nil: none
	run    func() error
}

func (c *command) finish() (int, error) { return c.Execution.Finish(c.run()) }

func (c *command) runOptions() session.RunOptions {
	opts := c.Execution.RunOptions()
	opts.Queue = c.o.queue
	return opts
}

func (o *runOptions) newRun(args []string) (*command, error) {
	spec, err := o.Spec()
	switch {
	case err != nil:
		return nil, err
	case o.Key != "" && o.manifest:
		return nil, errors.New("--manifest: cannot be combined with --key")
	case o.Key != "":
		spec.Lifetime = runner.Persistent
	case o.TTL != 0 || o.MaxAge != 0 || o.PauseIdle != 0:
		return nil, app.Hinted(errors.New("--ttl, --max-age and --pause-idle: a run's sandbox ends with its command"), "--key KEY makes a persistent sandbox")
	}
	if o.queue && o.Key == "" {
		return nil, app.Hinted(errors.New("--queue: a sandbox of one command has no queue"), "--key KEY names a persistent sandbox")
	}
	if _, _, err := o.Parsed(); err != nil {
		return nil, err
	}
	if err := o.CanAskCow(o.background); err != nil {
		return nil, err
	}
	if err := o.OpenDevcontainer(args); err != nil {
		return nil, err
	}
	r, err := o.NewRoot()
	if err != nil {
		return nil, err
	}
	if err := o.readSteps(args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		if argv, err = r.Argv(r.Config(), args); err != nil {
			return nil, err
		}
	}
	if err := launch.CanAsk(&o.Console, &o.Network, &o.ProcessOptions); err != nil {
		return nil, err
	}
	return o.scripted(args, argv, func(c *command) error { return c.start(spec, r, args) })
}

// scripted returns a command, which may be a script.
func (o *runOptions) scripted(args, argv []string, run func(*command) error) (*command, error) {
	sc, err := o.findScript(args)
	c := &command{o: o, script: sc}
	if err == nil {
		c.tool, err = o.installer(&o.Options, sc, args)
	}
	if err == nil {
		c.Execution, err = o.NewExecution(argv)
	}
	if err != nil {
		sc.close()
		return nil, err
	}
	if c.tool != nil {
		c.tool.Env = slices.Concat(c.tool.Env, c.Cmd.Env)
	}
	if sc != nil {
		c.Missing = func(err error) error { return sc.failed(c.Execution, err) }
		c.After = func(r *runner.Result) { sc.tell(&o.Console, r.ExitCode) }
	}
	c.run = func() error {
		defer sc.close()
		return run(c)
	}
	return c, nil
}

func (j *command) start(spec runner.Spec, r *launch.Root, args []string) error {
	s := j.o.Session(j.o.Network.Source(&j.o.Console), nil)
	defer s.Close()
	var err error
	if j.Placed, err = j.o.Place(&spec); err != nil {
		return err
	}
	defer j.Placed.Undo()
	if j.script != nil {
		if err := j.showScript(s, &spec); err != nil {
			return err
		}
	}
	p := r.Progress()
	defer p.Done()
	opts := j.runOptions()
	opts.Complete = func(c oci.Config, cmd *runner.Command) (err error) {
		cmd.Argv, err = r.Wrapped(&c, args)
		if err == nil && j.script != nil {
			j.script.command(cmd, c, cmd.Argv, args)
		}
		return err
	}
	// A path that some output names stays, though it is empty.
	opts.Manifest, opts.KeepEmpty = j.o.manifest, j.o.JSON || j.o.background || j.o.manifest
	cb := j.copyingScript(j.Placed.Recorded(j.o.Callbacks(j.Sig, &j.Stages, p)))
	c := r.CreateOptions(spec)
	if j.tool == nil && j.o.list == nil {
		return j.Ended(s.Run(j.Sig.Ctx, c, opts, cb))
	}
	return j.Ended(nil, j.within(s, c, cb, func(id string, image oci.Config) error {
		cb.Made = nil // it was called
		if j.o.list != nil {
			return j.steps(s, id, cb)
		}
		if err := opts.Complete(image, &opts.Command); err != nil {
			return err
		}
		opts.Complete = nil
		_, err := s.Exec(j.Sig.Ctx, id, opts, cb)
		return err
	}))
}

// createOptions are the options of create.
type createOptions struct {
	launch.Options
	codeOptions
}

func (o *createOptions) run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, app.Hinted(fmt.Errorf("unexpected argument %q", args[0]),
			"create runs no command; afterwards use demesne exec ID -- %s", args[0])
	}
	spec, err := o.Spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	if err := o.OpenDevcontainer(nil); err != nil {
		return 0, err
	}
	tool, err := o.installer(&o.Options, nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := o.NewRoot()
	if err != nil {
		return 0, err
	}
	sig := stream.WatchSignals(o.Quit, &stream.Terminal{Fd: -1})
	began, st := time.Now(), &launch.Stages{}
	sess := o.Session(o.Network.Source(&o.Console), nil)
	defer sess.Close()
	mounts, err := o.Place(&spec)
	if err != nil {
		return 0, err
	}
	defer mounts.Undo()
	p := r.Progress()
	b, err := sess.Create(sig.Ctx, r.CreateOptions(spec), mounts.Recorded(o.Callbacks(sig, st, p)))
	p.Done()
	if code := sig.GaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	trace := st.All(began)
	if o.Trace {
		launch.PrintTrace(o.Stderr, trace)
	}
	mounts.TellApart()
	if err := o.install(sig.Ctx, &o.Options, sess, b.ID, tool); err != nil {
		return 0, err
	}
	code, err := r.Hooks(sig.Ctx, sess, b)
	if code != 0 || err != nil {
		return code, err
	}
	code, err = o.tellCreated(sig.Ctx, b, trace)
	if err == nil { // the caller knows the id: make the sandbox outlive this process
		_, err = sess.Open(sig.Ctx, b.ID, session.Callbacks{})
	}
	return code, err
}

// tellCreated prints the id of a new sandbox, or all about it.
func (o *createOptions) tellCreated(ctx context.Context, b *session.Sandbox, trace []runner.Stage) (int, error) {
	if !o.JSON {
		return o.Print(b.ID + "\n")
	}
	if err := b.Account(ctx); err != nil {
		return 0, err
	}
	return o.PrintJSON(created{b.ID, o.Name, b.Out, b.Replaced, b.Receipt, trace})
}

// created is the output of create --json.
type created struct {
	Sandbox  string          `json:"sandbox"`
	Name     string          `json:"name,omitempty"`
	Out      string          `json:"output_dir"`
	Replaced bool            `json:"replaced,omitempty"` // an older sandbox with this key was removed
	Receipt  *runner.Receipt `json:"receipt,omitempty"`
	Trace    []runner.Stage  `json:"trace,omitempty"`
}

func (o *runOptions) exec(args []string) (int, error) {
	x, err := o.newExec(args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		if err := o.isThere(args); err != nil {
			return 0, err
		}
		return jobTool{o.App}.start(o)
	}
	return x.finish()
}

func (o *runOptions) newExec(args []string) (*command, error) {
	id := ""
	if o.Key == "" {
		if len(args) == 0 || args[0] == "" {
			return nil, app.Hinted(errors.New("no sandbox given"), "demesne ls lists sandboxes")
		}
		id, args = args[0], args[1:]
	}
	if err := o.readSteps(args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		var err error
		if argv, err = o.Argv(o.Verb, args); err != nil {
			return nil, err
		}
	}
	if o.UserName != "" {
		return nil, fmt.Errorf("user %q: %w", o.UserName, launch.ErrUser)
	}
	return o.scripted(args, argv, func(c *command) error { return c.exec(id, args) })
}

// isThere checks that the sandbox of a background command exists.
func (o *runOptions) isThere(args []string) error {
	s, ctx := o.Session(o.Network.Source(&o.Console), nil), context.Background()
	defer s.Close()
	if o.Key != "" {
		_, err := ofKey(ctx, s, o.Key)
		return err
	}
	i, err := s.Inspect(ctx, args[0])
	if err == nil && (i.State == runner.Ended || i.State == runner.Snapshot) {
		err = app.Hinted(fmt.Errorf("sandbox %q: it cannot run commands: %s", args[0], i.State), "demesne ls lists sandboxes")
	}
	return err
}

// ofKey returns the id of the sandbox with that key.
func ofKey(ctx context.Context, s *session.Service, key string) (string, error) {
	id, err := s.OfKey(ctx, key)
	if app.NoSuchSandbox(err) {
		err = app.Hinted(err, "demesne run --key %s makes one", key)
	}
	return id, err
}

func (j *command) exec(id string, args []string) (err error) {
	if err := j.o.Network.CheckSecrets(); err != nil {
		return err
	}
	s := j.o.Session(j.o.Network.Source(&j.o.Console), nil)
	defer s.Close()
	if id == "" {
		if id, err = ofKey(j.Sig.Ctx, s, j.o.Key); err != nil {
			return err
		}
	}
	cb := j.o.Callbacks(j.Sig, &j.Stages, nil)
	if j.o.list != nil {
		return j.Ended(nil, j.steps(s, id, cb))
	}
	if j.script != nil {
		if err := j.bringScript(s, id, cb); err != nil {
			return err
		}
		j.script.command(&j.Cmd, oci.Config{}, j.Cmd.Argv, args)
		cb.Made = nil // it was called
	}
	return j.Ended(s.Exec(j.Sig.Ctx, id, j.runOptions(), cb))
}

func (o *runOptions) flags() cmdline.Flags {
	return slices.Concat(o.CommandFlags(), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), o.EnvFileFlag(), o.EntrypointFlag(), backgroundFlag(&o.background),
		o.RootFlags(), o.SandboxFlags(), dependencyFlag(&o.codeOptions), o.InteriorFlags(), o.MountFlags(), o.CowFlag(),
		o.KeyFlag("run in the persistent sandbox of this key; make it if it does not exist"), o.ReplaceFlag(),
		queueFlag(&o.queue), o.LifeFlags(), o.Network.Flags(), o.Network.SecretFlags(), o.Network.AskFlags(),
		o.LimitFlags(), o.ResultFlags(), manifestFlag(&o.manifest))
}

func (o *runOptions) execFlags() cmdline.Flags {
	return slices.Concat(o.CommandFlags(), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), o.EnvFileFlag(), backgroundFlag(&o.background), queueFlag(&o.queue),
		o.KeyFlag("use the sandbox that was made with this key, instead of ID"), o.Network.SecretFlags(), o.ResultFlags())
}

func manifestFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "manifest", Set: cmdline.On(to),
		Help: "write a manifest: the SHA-256 sum of each file in /out, beside that directory"}}
}

func backgroundFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "background", Set: cmdline.On(to),
		Help: "start a background job, and print its id; see wait, logs, jobs and cancel"}}
}

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "queue", Set: cmdline.On(to),
		Help: "run after all earlier --queue commands for this sandbox, calls of agents included"}}
}

func (o *createOptions) flags() cmdline.Flags {
	user := *o.CommandFlags().Long("user")
	user.Group = app.GroupSandbox
	language := languageFlag(&o.codeOptions)
	language[0].Group, language[0].Help = app.GroupSandbox, "language of --dependency"
	trace := *o.ResultFlags().Long("trace")
	return slices.Concat(o.RootFlags(), o.SandboxFlags(), dependencyFlag(&o.codeOptions), language, o.InteriorFlags(), o.MountFlags(), cmdline.Flags{user},
		o.KeyFlag("return the sandbox that was made with this key, if it exists; omitted flags keep its values, and a differing one is an error"),
		o.ReplaceFlag(), o.ShareFlag(), o.LifeFlags(), o.Network.Flags(), o.Network.SecretFlags(), o.LimitFlags(), app.JSONFlag(&o.JSON), cmdline.Flags{trace})
}
