package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/runner"
	"demesne/runner/client"
)

// stopTime bounds cleanup that no caller waits for.
const stopTime = 10 * time.Second

func cmdRun(a *app, o *options, args []string) (int, error) {
	r, err := a.newRun(o, args)
	switch {
	case err != nil:
		return 0, err
	case o.background:
		return a.startJob(o)
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
	r, err := a.newRoot(o)
	if err != nil {
		return nil, err
	}
	argv, err := r.argv(args)
	if err != nil {
		return nil, err
	}
	if err := a.canAsk(o); err != nil {
		return nil, err
	}
	j, err := a.newExecution(o, argv)
	return &checked{j, func() error { return j.run(spec, r, args) }}, err
}

func (j *execution) run(spec runner.Spec, r *root, args []string) error {
	wanted := r.o.network.find(j.sig.ctx, j.app, r.o.verb)
	err := r.find(j.sig.ctx, &j.stages)
	if err != nil {
		return err
	}
	defer r.release()
	if j.cmd.Argv, err = r.argv(args); err != nil {
		return err
	}
	st, err := j.app.findSite(j.sig, spec, r, wanted, &j.stages)
	if err != nil {
		return err
	}
	defer st.eng.Close()
	defer func() {
		if !j.started {
			st.undo()
		}
	}()
	j.kept.hide(j.o.network.hidden())
	if r.o.key == "" {
		return j.runOnce(st, r)
	}
	j.useSecrets()
	b, err := j.app.makeBox(j.sig.ctx, st, r, &j.stages)
	if err != nil {
		return err
	}
	j.app.tellRestarted(r.o.verb, b)
	return j.within(b)
}

// runOnce makes the sandbox and starts its command in one call.
func (j *execution) runOnce(st *site, r *root) error {
	var id string
	return j.execute(func(ctx context.Context, cmd runner.Command) (process, []runner.Stage, error) {
		b, err := r.run(ctx, st.eng, st.spec, cmd)
		if err != nil {
			return nil, nil, err
		}
		id = b.ID
		j.app.warnMinimal(j.o.verb, b.Level)
		return b.process, append(b.Trace, b.trace...), nil
	}, func() { stop(st.eng, id) })
}

// stop removes a sandbox; it gives up after stopTime.
func stop(eng engine, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	eng.Remove(ctx, id)
}

// warnMinimal warns about the minimal isolation level. The receipt reports all other fallbacks.
func (a *app) warnMinimal(verb string, level runner.Level) {
	if level != runner.LevelMinimal {
		return
	}
	a.say(verb + ": isolation is minimal: no namespaces here, only Landlock and seccomp")
	fmt.Fprintln(a.stderr, "hint: demesne check shows what is missing; --require degraded refuses such a run")
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
	r, err := a.newRoot(o)
	if err != nil {
		return 0, err
	}
	sig := a.watchSignals(&terminal{fd: -1})
	began, st := time.Now(), &stages{}
	eng, b, err := a.makeRootAndBox(sig, spec, r, st)
	if code := sig.gaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	defer eng.Close()
	trace := st.all(began)
	if o.trace {
		printTrace(a.stderr, trace)
	}
	code, err := 0, error(nil)
	if o.json {
		if err := b.Account(sig.ctx); err != nil {
			return 0, err
		}
		code, err = a.printJSON(created{b.ID, o.name, b.Out, b.Replaced, b.Receipt, trace})
	} else {
		a.tellRestarted(o.verb, b)
		code, err = a.print(b.ID + "\n")
	}
	if err == nil { // the caller knows the id: make the sandbox outlive this process
		_, err = eng.Open(sig.ctx, b.ID)
	}
	return code, err
}

func (a *app) makeRootAndBox(sig *signals, spec runner.Spec, r *root, stages *stages) (engine, *box, error) {
	wanted := r.o.network.find(sig.ctx, a, r.o.verb)
	if err := r.find(sig.ctx, stages); err != nil {
		return nil, nil, err
	}
	defer r.release()
	st, err := a.findSite(sig, spec, r, wanted, stages)
	if err != nil {
		return nil, nil, err
	}
	b, err := a.makeBox(sig.ctx, st, r, stages)
	if err != nil {
		st.undo()
		st.eng.Close()
	}
	return st.eng, b, err
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
		return a.startJob(o)
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
	argv, err := o.argv(args)
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
	_, err := a.with(func(ctx context.Context, eng engine) (int, error) {
		if o.key != "" {
			_, err := ofKey(ctx, eng, o.key)
			return 0, err
		}
		i, err := eng.Inspect(ctx, args[0])
		if err == nil && (i.State == runner.Ended || i.State == runner.Snapshot) {
			err = hinted(fmt.Errorf("sandbox %q: it cannot run commands: %s", args[0], i.State), "demesne ls lists sandboxes")
		}
		return 0, err
	})
	return err
}

func (j *execution) exec(id string) error {
	again, err := j.app.again(j.o)
	if err != nil {
		return err
	}
	began := time.Now()
	eng, err := j.app.connect(j.sig.ctx, client.Options{Restart: again})
	if err != nil {
		return err
	}
	defer eng.Close()
	j.stages.since("connect", began)
	if id != "" && !j.o.queue {
		return j.execOnce(eng, id)
	}
	began = time.Now()
	if id == "" {
		if id, err = ofKey(j.sig.ctx, eng, j.o.key); err != nil {
			return err
		}
	}
	b, err := eng.Open(j.sig.ctx, id)
	if err != nil {
		return err
	}
	j.stages.since("open", began)
	j.app.tellRestarted("exec", b)
	j.useSecrets()
	return j.within(b)
}

// useSecrets passes the command's secrets on. A running sandbox that lacks them refuses the command.
func (j *execution) useSecrets() {
	j.kept.hide(j.o.network.hidden())
	j.cmd.Secrets = j.o.network.found
}

// execOnce opens the sandbox and starts its command in one call.
func (j *execution) execOnce(eng engine, id string) error {
	j.useSecrets()
	return j.execute(func(ctx context.Context, cmd runner.Command) (process, []runner.Stage, error) {
		b, err := eng.Exec(ctx, id, cmd)
		if err != nil {
			return nil, nil, err
		}
		j.app.tellRestarted("exec", b.box)
		return b.process, b.trace, nil
	}, func() {})
}
