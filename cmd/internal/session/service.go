// Package session implements [backend.Engine]. It turns the requests of an agent or a command line into
// sandboxes, output directories and jobs.
//
//	d, err := session.New(session.Options{Jobs: store, Attend: []string{self, "job"}})
//	o, err := d.Script(ctx, backend.Request{Image: "host", Command: "make test"}, backend.Watch{})
//
// Every run has its own directory below the output root. The sandbox sees it as /out, and it outlives the run.
// Text on stdout and stderr never passes through a file that the sandbox can reach. Pipes carry it to an
// unnamed file, which is linked into the output directory once the sandbox is gone.
//
// One connection to the runner serves all calls. The runner may end at any time; a call that finds it gone
// starts another. The runner and the job store hold the state of persistent sandboxes and jobs. A Service holds
// no state that must survive it.
//
// The package does not decide which caller may ask for what; see [backend.Request].
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

// Options configures a Service. Jobs and Attend are needed only by methods that start or report jobs.
type Options struct {
	OutputRoot string // empty: client.OutputRoot
	Jobs       *jobs.Store
	Attend     []string       // the command that calls [Service.Attend]; the job's id is appended
	Turns      string         // directory for the queues of calls with Request.Queue, shared with this user's other processes
	Most       int            // persistent sandboxes of this user; 0: any number
	Copy       tarball.Limits // bounds of one upload or download
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
	swap sync.Mutex // held while a download replaces an earlier one
}

// New returns a Service. It creates the output root if it is missing.
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

// Close ends the one-shot sandboxes of this Service. Jobs and persistent sandboxes live on.
func (d *Service) Close() { d.conn.close() }

// Script runs a command in a one-shot sandbox, or, if r has a key, in the key's persistent sandbox.
func (d *Service) Script(ctx context.Context, r backend.Request, w backend.Callbacks) (*backend.RunResult, error) {
	o, err := d.script(ctx, r, w, newStreams())
	return o, explained(err)
}

// script is Script with streams that may have further readers. Their text is placed in the output directory
// even when script fails.
func (d *Service) script(ctx context.Context, r backend.Request, w backend.Callbacks, s streams) (*backend.RunResult, error) {
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
	if err == nil && s.silent() && os.Remove(out.path) == nil { // nothing to keep
		s.drop()
		return &backend.RunResult{Job: out.name(), OutputDir: out.path, Result: res, Stdout: s.out.last(), Stderr: s.errs.last()}, nil
	}
	if err = errors.Join(err, s.place(out)); err != nil {
		return nil, err
	}
	return &backend.RunResult{
		Job: out.name(), OutputDir: out.path, Result: res, Stdout: s.out.last(), Stderr: s.errs.last(), Manifest: out.record(),
	}, nil
}

// asked creates a sandbox, registers ask as the handler of its questions about names, and starts cmd in it. The
// handler stays registered until done is called.
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

// creator makes a sandbox, and may start a command in it.
type creator func(context.Context, runner.Spec) (*client.Sandbox, error)

// make creates an output directory and, through create, the sandbox that owns it.
func (d *Service) make(ctx context.Context, r backend.Request, w backend.Callbacks, life runner.Lifetime, create creator) (_ *client.Sandbox, _ *outDir, err error) {
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
