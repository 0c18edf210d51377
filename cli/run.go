package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

// runOptions are the options of run and exec.
type runOptions struct {
	options
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
	*execution
	o      *runOptions
	script *script         // nil: the command is no script
	tool   *runner.Command // installs dependencies first; nil: none
	run    func() error
}

func (c *command) finish() (int, error) { return c.execution.finish(c.run()) }

func (c *command) runOptions() session.RunOptions {
	opts := c.execution.runOptions()
	opts.Queue = c.o.queue
	return opts
}

func (o *runOptions) newRun(args []string) (*command, error) {
	spec, err := o.spec()
	switch {
	case err != nil:
		return nil, err
	case o.key != "" && o.manifest:
		return nil, errors.New("--manifest: cannot be combined with --key")
	case o.key != "":
		spec.Lifetime = runner.Persistent
	case o.ttl != 0 || o.maxAge != 0 || o.pauseIdle != 0:
		return nil, app.Hinted(errors.New("--ttl, --max-age and --pause-idle: a run's sandbox ends with its command"), "--key KEY makes a persistent sandbox")
	}
	if o.queue && o.key == "" {
		return nil, app.Hinted(errors.New("--queue: a sandbox of one command has no queue"), "--key KEY names a persistent sandbox")
	}
	if _, _, err := o.parsed(); err != nil {
		return nil, err
	}
	if err := o.canAskCow(o.background); err != nil {
		return nil, err
	}
	if err := o.openDevcontainer(args); err != nil {
		return nil, err
	}
	r, err := o.newRoot()
	if err != nil {
		return nil, err
	}
	if err := o.readSteps(args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		if argv, err = r.argv(r.config(), args); err != nil {
			return nil, err
		}
	}
	if err := canAsk(&o.Console, &o.network, &o.processOptions); err != nil {
		return nil, err
	}
	return o.scripted(args, argv, func(c *command) error { return c.start(spec, r, args) })
}

// scripted returns a command, which may be a script.
func (o *runOptions) scripted(args, argv []string, run func(*command) error) (*command, error) {
	sc, err := o.findScript(args)
	c := &command{o: o, script: sc}
	if err == nil {
		c.tool, err = o.installer(&o.options, sc, args)
	}
	if err == nil {
		c.execution, err = o.newExecution(argv)
	}
	if err != nil {
		sc.close()
		return nil, err
	}
	if c.tool != nil {
		c.tool.Env = slices.Concat(c.tool.Env, c.cmd.Env)
	}
	if sc != nil {
		c.missing = func(err error) error { return sc.failed(c.execution, err) }
		c.after = func(r *runner.Result) { sc.tell(&o.Console, r.ExitCode) }
	}
	c.run = func() error {
		defer sc.close()
		return run(c)
	}
	return c, nil
}

func (j *command) start(spec runner.Spec, r *root, args []string) error {
	s := j.o.Session(j.o.network.source(&j.o.Console), nil)
	defer s.Close()
	var err error
	if j.placed, err = j.o.place(&spec); err != nil {
		return err
	}
	defer j.placed.undo()
	if j.script != nil {
		if err := j.showScript(s, &spec); err != nil {
			return err
		}
	}
	p := r.progress()
	defer p.Done()
	opts := j.runOptions()
	opts.Complete = func(c oci.Config, cmd *runner.Command) (err error) {
		cmd.Argv, err = r.wrapped(&c, args)
		if err == nil && j.script != nil {
			j.script.command(cmd, c, cmd.Argv, args)
		}
		return err
	}
	// A path that some output names stays, though it is empty.
	opts.Manifest, opts.KeepEmpty = j.o.manifest, j.o.json || j.o.background || j.o.manifest
	cb := j.copyingScript(j.placed.recorded(j.o.callbacks(j.sig, &j.stages, p)))
	c := r.createOptions(spec)
	if j.tool == nil && j.o.list == nil {
		return j.ended(s.Run(j.sig.Ctx, c, opts, cb))
	}
	return j.ended(nil, j.within(s, c, cb, func(id string, image oci.Config) error {
		cb.Made = nil // it was called
		if j.o.list != nil {
			return j.steps(s, id, cb)
		}
		if err := opts.Complete(image, &opts.Command); err != nil {
			return err
		}
		opts.Complete = nil
		_, err := s.Exec(j.sig.Ctx, id, opts, cb)
		return err
	}))
}

// createOptions are the options of create.
type createOptions struct {
	options
	codeOptions
}

func (o *createOptions) run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, app.Hinted(fmt.Errorf("unexpected argument %q", args[0]),
			"create runs no command; afterwards use demesne exec ID -- %s", args[0])
	}
	spec, err := o.spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	if err := o.openDevcontainer(nil); err != nil {
		return 0, err
	}
	tool, err := o.installer(&o.options, nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := o.newRoot()
	if err != nil {
		return 0, err
	}
	sig := stream.WatchSignals(o.Quit, &stream.Terminal{Fd: -1})
	began, st := time.Now(), &stages{}
	sess := o.Session(o.network.source(&o.Console), nil)
	defer sess.Close()
	mounts, err := o.place(&spec)
	if err != nil {
		return 0, err
	}
	defer mounts.undo()
	p := r.progress()
	b, err := sess.Create(sig.Ctx, r.createOptions(spec), mounts.recorded(o.callbacks(sig, st, p)))
	p.Done()
	if code := sig.GaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	trace := st.all(began)
	if o.trace {
		printTrace(o.Stderr, trace)
	}
	mounts.tellApart()
	if err := o.install(sig.Ctx, &o.options, sess, b.ID, tool); err != nil {
		return 0, err
	}
	code, err := r.hooks(sig.Ctx, sess, b)
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
	if !o.json {
		return o.Print(b.ID + "\n")
	}
	if err := b.Account(ctx); err != nil {
		return 0, err
	}
	return o.PrintJSON(created{b.ID, o.name, b.Out, b.Replaced, b.Receipt, trace})
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
	if o.key == "" {
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
		if argv, err = o.argv(o.Verb, args); err != nil {
			return nil, err
		}
	}
	if o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	return o.scripted(args, argv, func(c *command) error { return c.exec(id, args) })
}

// isThere checks that the sandbox of a background command exists.
func (o *runOptions) isThere(args []string) error {
	s, ctx := o.Session(o.network.source(&o.Console), nil), context.Background()
	defer s.Close()
	if o.key != "" {
		_, err := ofKey(ctx, s, o.key)
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
	if err := j.o.network.checkSecrets(); err != nil {
		return err
	}
	s := j.o.Session(j.o.network.source(&j.o.Console), nil)
	defer s.Close()
	if id == "" {
		if id, err = ofKey(j.sig.Ctx, s, j.o.key); err != nil {
			return err
		}
	}
	cb := j.o.callbacks(j.sig, &j.stages, nil)
	if j.o.list != nil {
		return j.ended(nil, j.steps(s, id, cb))
	}
	if j.script != nil {
		if err := j.bringScript(s, id, cb); err != nil {
			return err
		}
		j.script.command(&j.cmd, oci.Config{}, j.cmd.Argv, args)
		cb.Made = nil // it was called
	}
	return j.ended(s.Exec(j.sig.Ctx, id, j.runOptions(), cb))
}

func (o *runOptions) flags() cmdline.Flags {
	return slices.Concat(o.commandFlags(), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), o.envFileFlag(), o.entrypointFlag(), backgroundFlag(&o.background),
		o.rootFlags(), o.sandboxFlags(), dependencyFlag(&o.codeOptions), o.interiorFlags(), o.mountFlags(), o.cowFlag(),
		o.keyFlag("run in the persistent sandbox of this key; make it if it does not exist"), o.replaceFlag(),
		queueFlag(&o.queue), o.lifeFlags(), o.network.flags(), o.network.secretFlags(), o.network.askFlags(),
		o.limitFlags(), o.resultFlags(), manifestFlag(&o.manifest))
}

func (o *runOptions) execFlags() cmdline.Flags {
	return slices.Concat(o.commandFlags(), languageFlag(&o.codeOptions), stepFlags(&o.stepOptions), o.envFileFlag(), backgroundFlag(&o.background), queueFlag(&o.queue),
		o.keyFlag("use the sandbox that was made with this key, instead of ID"), o.network.secretFlags(), o.resultFlags())
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
	user := *o.commandFlags().Long("user")
	user.Group = app.GroupSandbox
	language := languageFlag(&o.codeOptions)
	language[0].Group, language[0].Help = app.GroupSandbox, "language of --dependency"
	trace := *o.resultFlags().Long("trace")
	return slices.Concat(o.rootFlags(), o.sandboxFlags(), dependencyFlag(&o.codeOptions), language, o.interiorFlags(), o.mountFlags(), cmdline.Flags{user},
		o.keyFlag("return the sandbox that was made with this key, if it exists; omitted flags keep its values, and a differing one is an error"),
		o.replaceFlag(), o.shareFlag(), o.lifeFlags(), o.network.flags(), o.network.secretFlags(), o.limitFlags(), app.JSONFlag(&o.json), cmdline.Flags{trace})
}
