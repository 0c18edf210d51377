package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"demesne/runner"
)

// stopTime bounds what nobody waits for.
const stopTime = 10 * time.Second

func cmdRun(a *app, o *options, args []string) (int, error) {
	spec, err := o.spec()
	if err != nil {
		return 0, err
	}
	j, err := a.newJob(o, args)
	if err != nil {
		return 0, err
	}
	return j.finish(j.run(spec))
}

func (j *job) run(spec runner.Spec) error {
	eng, b, undo, err := j.app.makeBox(j.sig.ctx, j.o, spec, j.connected, &j.stages)
	if err != nil {
		return err
	}
	defer eng.Close()
	defer func() {
		if !j.started {
			undo()
		}
	}()
	return j.execute(b, func() { stop(eng, b.ID) })
}

// stop ends the sandbox of a command that did not end when it was told to.
func stop(eng engine, id string) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	eng.Stop(ctx, id)
}

// makeBox makes the directories and the sandbox of run and create. undo takes the
// directories away again, for whoever fails later.
func (a *app) makeBox(ctx context.Context, o *options, spec runner.Spec, connected func() (engine, error), st *stages) (_ engine, _ *box, undo func(), err error) {
	spec.Workspace, err = workspaceDir(o.workspace)
	out := &outDir{}
	if err == nil {
		out, err = prepareOut(o.out)
	}
	// Also with an error: a runner that was started for this ends when we leave it.
	eng, cerr := connected()
	if err != nil {
		if cerr == nil {
			eng.Close()
		}
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			out.undo()
		}
	}()
	if cerr != nil {
		return nil, nil, nil, cerr
	}
	spec.Out = out.path
	b, err := eng.Create(ctx, spec)
	if err != nil {
		eng.Close()
		return nil, nil, nil, err
	}
	st.add(b.Trace...)
	a.warnMinimal(o.verb, b.Level)
	return eng, b, out.undo, nil
}

// warnMinimal tells of the one rung that a caller should not miss. All others are in
// the receipt.
func (a *app) warnMinimal(verb string, level runner.Level) {
	if level != runner.LevelMinimal {
		return
	}
	a.say(verb + ": isolation is minimal: no namespaces here, only Landlock and seccomp")
	fmt.Fprintln(a.stderr, "hint: demesne check says what is missing; --require degraded refuses to run like this")
}

func cmdCreate(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, hinted(fmt.Errorf("argument %q: not wanted", args[0]),
			"create runs nothing: demesne exec ID -- %s does, afterwards", args[0])
	}
	spec, err := o.spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	began, st := time.Now(), &stages{}
	sig := newSignals(&terminal{fd: -1})
	connected := a.connecting(sig.ctx, st)
	sig.watch()
	eng, b, _, err := a.makeBox(sig.ctx, o, spec, connected, st)
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
	if o.json {
		if err := b.Account(sig.ctx); err != nil {
			return 0, err
		}
		return a.printJSON(created{b.ID, o.name, b.Out, b.Receipt, trace})
	}
	return a.print(b.ID + "\n")
}

// created is the answer of create --json.
type created struct {
	Sandbox string          `json:"sandbox"`
	Name    string          `json:"name,omitempty"`
	Out     string          `json:"output_dir"`
	Receipt *runner.Receipt `json:"receipt,omitempty"`
	Trace   []runner.Stage  `json:"trace,omitempty"`
}

func cmdExec(a *app, o *options, args []string) (int, error) {
	if len(args) == 0 {
		return 0, hinted(errors.New("no sandbox given"), "demesne ls lists the sandboxes there are")
	}
	j, err := a.newJob(o, args[1:])
	if err != nil {
		return 0, err
	}
	return j.finish(j.exec(args[0]))
}

func (j *job) exec(id string) error {
	eng, err := j.connected()
	if err != nil {
		return err
	}
	defer eng.Close()
	began := time.Now()
	b, err := eng.Open(j.sig.ctx, id)
	if err != nil {
		return err
	}
	j.stages.since("open", began)
	return j.execute(b, func() {})
}
