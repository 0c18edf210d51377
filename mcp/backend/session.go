package backend

import (
	"cmp"
	"fmt"
	"path/filepath"
	"sync"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// outside is the default working directory.
const outside = "/out"

// Create returns the sandbox that r asks for.
func (r Request) Create() (c session.CreateOptions, err error) {
	c = session.CreateOptions{
		Spec: r.Spec, User: r.User, Unasked: r.UnaskedLimits,
		Egress: session.Egress{Mode: r.Egress, Allow: r.Domains},
	}
	if r.Stored {
		c.Pull = images.PullNever
	}
	if r.Ask {
		c.Egress.Ask = runner.AskTime
	}
	if !r.OwnImage {
		c.Unasked = append(c.Unasked, "image")
	}
	if !r.OwnEgress {
		c.Unasked = append(c.Unasked, "egress")
	}
	if c.Image, err = session.ParseImage(r.Image); err != nil {
		err = fmt.Errorf("image %q: %w", r.Image, err)
	}
	return c, err
}

// Run returns the command that r asks for. Its output is kept, with a manifest.
func (r Request) Run() session.RunOptions {
	cmd := runner.Command{
		Argv: []string{"/bin/sh", "-c", r.Command}, Env: r.Env, Dir: cmp.Or(r.Dir, outside), User: r.Spec.User,
		Timeout: r.Timeout, Account: true,
	}
	if cmd.Timeout <= 0 {
		cmd.Timeout = runner.Longest
	}
	o := session.RunOptions{Command: cmd, Stdin: r.Stdin, Logs: true, Manifest: true, Queue: r.Queue, Shown: r.MaxOutput}
	o.Steps.List, o.Steps.GoOn = r.Steps, r.GoOn
	return o
}

// Callbacks returns callbacks that call w.
func (r Request) Callbacks(w Callbacks) session.Callbacks {
	cb := session.Callbacks{Image: fetching(r.Image, w.Progress)}
	if w.Ask != nil {
		cb.Ask = func(q runner.Question, readable []string) (allow, answered bool) {
			return w.Ask(Question{Name: q.Name, Port: q.Port, Inputs: readable}), true
		}
	}
	if w.Output != nil {
		cb.Began = func(last func() session.Tail) {
			w.Output(func() (string, int64) { t := last(); return t.Text, t.Bytes })
		}
	}
	return cb
}

// ResultOf returns d in the form that the tools use.
func ResultOf(d *session.RunResult) *RunResult {
	return &RunResult{
		Job: filepath.Base(d.Out), OutputDir: d.Out, Manifest: d.Manifest, Result: d.Result,
		Stdout: Tail(d.Stdout), Stderr: Tail(d.Stderr), Step: d.Step, Failed: d.Failed,
	}
}

// fetching converts image events to progress lines for tell.
func fetching(image string, tell func(string)) func(events.Event) {
	if tell == nil {
		return nil
	}
	var mu sync.Mutex
	got, total := map[oci.Digest]int64{}, map[oci.Digest]int64{}
	return func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Event == events.Retry:
			tell(fmt.Sprintf("image %s: trying again in %s: %s", image, e.In, e.Why))
			return
		case e.Event == events.Notice && e.Why != "" && e.DiffID == "": // a step of a build
			tell(fmt.Sprintf("image %s: %s", image, e.Why))
			return
		case e.Event != events.Layer:
			return
		case e.State == events.Unpacking || e.State == events.Done:
			tell(fmt.Sprintf("image %s: unpacking", image))
			return
		}
		got[e.Digest] = e.Bytes
		if e.Total > 0 {
			total[e.Digest] = e.Total
		}
		if e.State == events.Pulled || e.State == events.Present {
			got[e.Digest] = total[e.Digest]
		}
		tell(fmt.Sprintf("image %s: %d of %d MiB fetched", image, sum(got)>>20, sum(total)>>20))
	}
}

func sum(of map[oci.Digest]int64) (n int64) {
	for _, v := range of {
		n += v
	}
	return n
}
