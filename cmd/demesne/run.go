package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/cmd/internal/session"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/runner/ipc"
)

func cmdRun(a *app, o *options, args []string) (int, error) {
	r, err := a.newRun(o, args)
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

func (a *app) newRun(o *options, args []string) (*checked, error) {
	spec, err := o.spec()
	switch {
	case err != nil:
		return nil, err
	case o.key != "" && o.manifest:
		return nil, errors.New("--manifest: cannot be combined with --key")
	case o.key != "":
		spec.Lifetime = runner.Persistent
	case o.ttl != 0 || o.maxAge != 0 || o.pauseIdle != 0:
		return nil, hinted(errors.New("--ttl, --max-age and --pause-idle: a run's sandbox ends with its command"), "--key KEY makes a persistent sandbox")
	}
	if o.queue && o.key == "" {
		return nil, hinted(errors.New("--queue: a sandbox of one command has no queue"), "--key KEY names a persistent sandbox")
	}
	if _, _, err := o.parsed(); err != nil {
		return nil, err
	}
	if err := a.canAskCow(o); err != nil {
		return nil, err
	}
	if err := a.openDevcontainer(o, args); err != nil {
		return nil, err
	}
	r, err := a.newRoot(o)
	if err != nil {
		return nil, err
	}
	argv, err := r.argv(r.config(), args)
	if err != nil {
		return nil, err
	}
	if err := a.canAsk(&o.network, &o.processOptions); err != nil {
		return nil, err
	}
	j, err := a.newExecution(o, argv)
	return &checked{j, func() error { return j.run(spec, r, args) }}, err
}

func (j *execution) run(spec runner.Spec, r *root, args []string) error {
	s := j.app.session(&j.o.network)
	defer s.Close()
	var err error
	if j.placed, err = j.app.place(&spec, j.o); err != nil {
		return err
	}
	defer j.placed.undo()
	p := r.progress()
	defer p.done()
	opts := j.runOptions()
	opts.Argv = func(c oci.Config) ([]string, error) { return r.wrapped(&c, args) }
	// A path that some output names stays, though it is empty.
	opts.Manifest, opts.KeepEmpty = j.o.manifest, j.o.json || j.o.background || j.o.manifest
	cb := j.placed.recorded(j.app.callbacks(j.o, j.sig, &j.stages, p))
	return j.ended(s.Run(j.sig.ctx, r.createOptions(spec), opts, cb))
}

func (j *execution) runOptions() session.RunOptions {
	return session.RunOptions{Command: j.cmd, Streams: j, Queue: j.o.queue}
}

func cmdCreate(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, hinted(fmt.Errorf("unexpected argument %q", args[0]),
			"create runs no command; afterwards use demesne exec ID -- %s", args[0])
	}
	spec, err := o.spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	if err := a.openDevcontainer(o, nil); err != nil {
		return 0, err
	}
	r, err := a.newRoot(o)
	if err != nil {
		return 0, err
	}
	sig := watchSignals(a.quit, &terminal{fd: -1})
	began, st := time.Now(), &stages{}
	sess := a.session(&o.network)
	defer sess.Close()
	mounts, err := a.place(&spec, o)
	if err != nil {
		return 0, err
	}
	defer mounts.undo()
	p := r.progress()
	b, err := sess.Create(sig.ctx, r.createOptions(spec), mounts.recorded(a.callbacks(o, sig, st, p)))
	p.done()
	if code := sig.gaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	trace := st.all(began)
	if o.trace {
		printTrace(a.stderr, trace)
	}
	mounts.tellApart()
	code, err := r.hooks(sig.ctx, sess, b)
	if code != 0 || err != nil {
		return code, err
	}
	if o.json {
		if err := b.Account(sig.ctx); err != nil {
			return 0, err
		}
		code, err = a.printJSON(created{b.ID, o.name, b.Out, b.Replaced, b.Receipt, trace})
	} else {
		code, err = a.print(b.ID + "\n")
	}
	if err == nil { // the caller knows the id: make the sandbox outlive this process
		_, err = sess.Open(sig.ctx, b.ID, session.Callbacks{})
	}
	return code, err
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

func cmdExec(a *app, o *options, args []string) (int, error) {
	x, err := a.newExec(o, args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		if err := a.isThere(o, args); err != nil {
			return 0, err
		}
		return jobTool{a}.start(o)
	}
	return x.finish()
}

func (a *app) newExec(o *options, args []string) (*checked, error) {
	id := ""
	if o.key == "" {
		if len(args) == 0 || args[0] == "" {
			return nil, hinted(errors.New("no sandbox given"), "demesne ls lists sandboxes")
		}
		id, args = args[0], args[1:]
	}
	argv, err := o.argv(o.verb, args)
	if err != nil {
		return nil, err
	}
	if o.userName != "" {
		return nil, fmt.Errorf("user %q: %w", o.userName, errUser)
	}
	j, err := a.newExecution(o, argv)
	return &checked{j, func() error { return j.exec(id) }}, err
}

// isThere checks that the sandbox of a background command exists.
func (a *app) isThere(o *options, args []string) error {
	s, ctx := a.session(&o.network), context.Background()
	defer s.Close()
	if o.key != "" {
		_, err := ofKey(ctx, s, o.key)
		return err
	}
	i, err := s.Inspect(ctx, args[0])
	if err == nil && (i.State == runner.Ended || i.State == runner.Snapshot) {
		err = hinted(fmt.Errorf("sandbox %q: it cannot run commands: %s", args[0], i.State), "demesne ls lists sandboxes")
	}
	return err
}

// ofKey returns the id of the sandbox with that key.
func ofKey(ctx context.Context, s *session.Service, key string) (string, error) {
	id, err := s.OfKey(ctx, key)
	if lacks(err) {
		err = hinted(err, "demesne run --key %s makes one", key)
	}
	return id, err
}

// lacks reports whether err means that there is no such sandbox.
func lacks(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox
}

func (j *execution) exec(id string) (err error) {
	if err := j.o.network.checkSecrets(); err != nil {
		return err
	}
	s := j.app.session(&j.o.network)
	defer s.Close()
	if id == "" {
		if id, err = ofKey(j.sig.ctx, s, j.o.key); err != nil {
			return err
		}
	}
	return j.ended(s.Exec(j.sig.ctx, id, j.runOptions(), j.app.callbacks(j.o, j.sig, &j.stages, nil)))
}
