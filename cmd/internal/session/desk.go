// Package desk does what is asked in package work: it is where the words of an agent or a
// command line become sandboxes, output directories and jobs.
//
//	d, err := session.New(session.Options{Jobs: store, Attend: []string{self, "job"}})
//	o, err := d.Script(ctx, backend.Request{Image: "host", Command: "make test"}, backend.Watch{})
//
// Every run has a directory of its own below the output root, which is its /out and outlives
// it. What a command writes to stdout and stderr never passes through a file that the
// sandbox can reach: pipes carry it to a file without a name, which gets one in the output
// directory when the sandbox is gone.
//
// One connection to the runner serves all calls. The runner may end at any time, and a call
// that finds it gone starts another. Sandboxes that stay, and jobs, are known to the runner
// and the job store: a desk has no state that anybody would miss.
//
// It does not decide who may ask for what; see [backend.Request].
package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"demesne/cmd/internal/session/base"
	"demesne/cmd/internal/session/egress"
	"demesne/images"
	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/jobs"
	"demesne/runner/tarball"
)

// Options say where a desk keeps things. Only what starts or tells of jobs needs Jobs and
// Attend.
type Options struct {
	OutputRoot string // empty: client.OutputRoot
	Jobs       *jobs.Store
	Attend     []string       // what calls [Service.Attend] with the id that follows it
	Turns      string         // a directory: where calls that are made in turn wait, as others of this user do
	Most       int            // sandboxes that stay, of this user; 0: any number
	Copy       tarball.Limits // of one upload or download
	Images     func() (*images.Client, error)
	Runner     client.Options
}

// Service is a [backend.Engine].
type Service struct {
	opts Options
	root string
	conn connection
	net  network
	asks asks
	swap sync.Mutex // held while a download takes another's place
}

// New makes the output root, if it is missing.
func New(o Options) (*Service, error) {
	root := o.OutputRoot
	if root == "" {
		var err error
		if root, err = client.OutputRoot(); err != nil {
			return nil, err
		}
	}
	err := os.MkdirAll(root, ownerOnly)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err == nil {
		root, err = filepath.Abs(root)
	}
	if err != nil {
		return nil, fmt.Errorf("make output root: %w", err)
	}
	d := &Service{opts: o, root: root}
	o.Runner.Ask = d.question
	d.conn.opts = o.Runner
	return d, nil
}

// OutputRoot is where the output directories are.
func (d *Service) OutputRoot() string { return d.root }

// Close ends what runs for this desk. Jobs, and sandboxes that stay, do not.
func (d *Service) Close() { d.conn.close() }

// Script runs a command in a sandbox of its own.
func (d *Service) Script(ctx context.Context, r backend.Request, w backend.Watch) (*backend.Outcome, error) {
	o, err := d.script(ctx, r, w, newStreams())
	return o, explained(err)
}

// script is Script with streams that may be somebody's besides. Their text is in the output
// directory also when there is no outcome.
func (d *Service) script(ctx context.Context, r backend.Request, w backend.Watch, s streams) (*backend.Outcome, error) {
	if r.Spec.Key != "" {
		return d.keyed(ctx, r, w, s)
	}
	s.out.keep(d.root)
	s.errs.keep(d.root)
	var out *outDir
	done := func() {}
	res, err := d.execute(ctx, func(cmd runner.Command) (box *client.Sandbox, p *client.Process, err error) {
		box, out, err = d.make(ctx, r, w, runner.OneShot, func(ctx context.Context, spec runner.Spec) (box *client.Sandbox, err error) {
			if r.Ask && w.Ask != nil {
				box, p, done, err = d.asked(ctx, spec, cmd, w.Ask)
			} else {
				box, p, err = d.conn.run(ctx, spec, cmd)
			}
			return box, err
		})
		return box, p, err
	}, r, w, s)
	defer func() { done() }()
	if out != nil {
		defer out.close()
	}
	if err == nil && s.silent() && os.Remove(out.path) == nil { // there is nothing to keep
		s.drop()
		return &backend.Outcome{Job: out.name(), OutputDir: out.path, Result: res, Stdout: s.out.last(), Stderr: s.errs.last()}, nil
	}
	if err = errors.Join(err, s.place(out)); err != nil {
		return nil, err
	}
	return &backend.Outcome{
		Job: out.name(), OutputDir: out.path, Result: res, Stdout: s.out.last(), Stderr: s.errs.last(), Manifest: out.record(),
	}, nil
}

// asked makes a sandbox, and starts cmd in it when it is known whom to ask about names, until done
// is called.
func (d *Service) asked(ctx context.Context, spec runner.Spec, cmd runner.Command, ask func(backend.Question) bool) (box *client.Sandbox, p *client.Process, done func(), err error) {
	done = func() {}
	if box, err = d.conn.create(ctx, spec); err != nil {
		return nil, nil, done, err
	}
	done = d.asks.listen(box.ID, ask)
	if p, err = box.Exec(ctx, cmd); err != nil {
		stop(box)
	}
	return box, p, done, err
}

// creator makes a sandbox, and may start something in it.
type creator func(context.Context, runner.Spec) (*client.Sandbox, error)

// make makes an output directory and, by create, the sandbox that has it.
func (d *Service) make(ctx context.Context, r backend.Request, w backend.Watch, life runner.Lifetime, create creator) (_ *client.Sandbox, _ *outDir, err error) {
	ref, err := base.Parse(r.Image)
	if err != nil {
		return nil, nil, fmt.Errorf("image %q: %w", r.Image, err)
	}
	spec := r.Spec
	if spec.Egress, err = d.net.egress(ctx, r); err != nil {
		return nil, nil, err
	}
	g, err := base.Find(ctx, ref, base.Options{Images: d.opts.Images, Progress: fetching(r.Image, w.Progress)})
	defer g.Release()
	if err != nil {
		return nil, nil, err
	}
	out, err := newOut(d.root)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			out.undo()
		}
	}()
	spec.Lifetime, spec.Out = life, out.path
	if spec.Key != "" {
		spec.Given = given(r, ref)
	}
	g.Fill(&spec, r.User)
	if spec.Egress != nil {
		if spec.Egress.Log, err = egress.LogFile(d.root, out.name()); err != nil {
			return nil, nil, err
		}
	}
	box, err := base.Create(ctx, g, spec, create)
	if err != nil {
		return nil, nil, err
	}
	return box, out, nil
}
