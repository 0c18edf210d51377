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
	"demesne/runner"
	"demesne/session"
)

func cmdRun(a *app.App, o *options, args []string) (int, error) {
	r, err := newRun(a, o, args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		return jobTool{a}.start(o)
	}
	return r.finish()
}

// checked is a command that passed every check that needs no sandbox, with the function that runs it.
type checked struct {
	job *execution
	run func() error
}

func (c *checked) finish() (int, error) { return c.job.finish(c.run()) }

func newRun(a *app.App, o *options, args []string) (*checked, error) {
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
	if err := canAskCow(&a.Console, o); err != nil {
		return nil, err
	}
	if err := openDevcontainer(a, o, args); err != nil {
		return nil, err
	}
	r, err := newRoot(a, o)
	if err != nil {
		return nil, err
	}
	if err := readSteps(a, o, args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		if argv, err = r.argv(r.config(), args); err != nil {
			return nil, err
		}
	}
	if err := canAsk(&a.Console, &o.network, &o.processOptions); err != nil {
		return nil, err
	}
	return scripted(a, o, args, argv, func(j *execution) error { return j.run(spec, r, args) })
}

// scripted returns the execution of a command, which may be a script.
func scripted(a *app.App, o *options, args, argv []string, run func(*execution) error) (*checked, error) {
	sc, err := findScript(a, o, args)
	var tool *runner.Command
	if err == nil {
		tool, err = o.installer(sc, args)
	}
	var j *execution
	if err == nil {
		j, err = newExecution(a, o, argv)
	}
	if err != nil {
		sc.close()
		return nil, err
	}
	if j.script, j.tool = sc, tool; tool != nil {
		tool.Env = slices.Concat(tool.Env, j.cmd.Env)
	}
	return &checked{j, func() error {
		defer sc.close()
		return run(j)
	}}, nil
}

func (j *execution) run(spec runner.Spec, r *root, args []string) error {
	s := j.app.Session(j.o.network.source(&j.app.Console), nil)
	defer s.Close()
	var err error
	if j.placed, err = place(j.app, &spec, j.o); err != nil {
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
	cb := j.copyingScript(j.placed.recorded(callbacks(j.app, j.o, j.sig, &j.stages, p)))
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

func (j *execution) runOptions() session.RunOptions {
	return session.RunOptions{Command: j.cmd, Streams: j, Queue: j.o.queue}
}

func cmdCreate(a *app.App, o *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, app.Hinted(fmt.Errorf("unexpected argument %q", args[0]),
			"create runs no command; afterwards use demesne exec ID -- %s", args[0])
	}
	spec, err := o.spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	if err := openDevcontainer(a, o, nil); err != nil {
		return 0, err
	}
	tool, err := o.installer(nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := newRoot(a, o)
	if err != nil {
		return 0, err
	}
	sig := stream.WatchSignals(a.Quit, &stream.Terminal{Fd: -1})
	began, st := time.Now(), &stages{}
	sess := a.Session(o.network.source(&a.Console), nil)
	defer sess.Close()
	mounts, err := place(a, &spec, o)
	if err != nil {
		return 0, err
	}
	defer mounts.undo()
	p := r.progress()
	b, err := sess.Create(sig.Ctx, r.createOptions(spec), mounts.recorded(callbacks(a, o, sig, st, p)))
	p.Done()
	if code := sig.GaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	trace := st.all(began)
	if o.trace {
		printTrace(a.Stderr, trace)
	}
	mounts.tellApart()
	if err := installDependencies(a, sig.Ctx, sess, o, b.ID, tool); err != nil {
		return 0, err
	}
	code, err := r.hooks(sig.Ctx, sess, b)
	if code != 0 || err != nil {
		return code, err
	}
	code, err = tellCreated(a, sig.Ctx, o, b, trace)
	if err == nil { // the caller knows the id: make the sandbox outlive this process
		_, err = sess.Open(sig.Ctx, b.ID, session.Callbacks{})
	}
	return code, err
}

// tellCreated prints the id of a new sandbox, or all about it.
func tellCreated(a *app.App, ctx context.Context, o *options, b *session.Sandbox, trace []runner.Stage) (int, error) {
	if !o.json {
		return a.Print(b.ID + "\n")
	}
	if err := b.Account(ctx); err != nil {
		return 0, err
	}
	return a.PrintJSON(created{b.ID, o.name, b.Out, b.Replaced, b.Receipt, trace})
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

func cmdExec(a *app.App, o *options, args []string) (int, error) {
	x, err := newExec(a, o, args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		if err := isThere(a, o, args); err != nil {
			return 0, err
		}
		return jobTool{a}.start(o)
	}
	return x.finish()
}

func newExec(a *app.App, o *options, args []string) (*checked, error) {
	id := ""
	if o.key == "" {
		if len(args) == 0 || args[0] == "" {
			return nil, app.Hinted(errors.New("no sandbox given"), "demesne ls lists sandboxes")
		}
		id, args = args[0], args[1:]
	}
	if err := readSteps(a, o, args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		var err error
		if argv, err = o.argv(o.verb, args); err != nil {
			return nil, err
		}
	}
	if o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	return scripted(a, o, args, argv, func(j *execution) error { return j.exec(id, args) })
}

// isThere checks that the sandbox of a background command exists.
func isThere(a *app.App, o *options, args []string) error {
	s, ctx := a.Session(o.network.source(&a.Console), nil), context.Background()
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

func (j *execution) exec(id string, args []string) (err error) {
	if err := j.o.network.checkSecrets(); err != nil {
		return err
	}
	s := j.app.Session(j.o.network.source(&j.app.Console), nil)
	defer s.Close()
	if id == "" {
		if id, err = ofKey(j.sig.Ctx, s, j.o.key); err != nil {
			return err
		}
	}
	cb := callbacks(j.app, j.o, j.sig, &j.stages, nil)
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
