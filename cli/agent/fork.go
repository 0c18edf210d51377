package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"demesne/agents"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// maxForks is how many attempts --fork starts.
const maxForks = 16

// setForks sets the number of attempts.
func (o *agentOptions) setForks(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxForks {
		return fmt.Errorf("%q: not a number from 1 to %d", s, maxForks)
	}
	o.forks = n
	return nil
}

func branchStamp() string { return time.Now().UTC().Format("20060102-150405") }

// forking is one prepared sandbox, and the attempts on its forks.
type forking struct {
	o    *agentOptions
	home string
	args []string

	s        *session.Service
	sig      *stream.Signals
	dir      *session.Directory
	prepared *agentTerminal // of the sandbox that is forked
	id       string         // of the prepared sandbox
}

// attempt is one of several forks that get the same task.
type attempt struct {
	t     *agentTerminal
	s     *session.Service // the fork ends with it
	id    string           // of the fork
	files []*os.File       // its streams

	code int
	err  error
	took time.Duration
}

// forkAgent prepares a sandbox, makes several attempts at one task, each on a fork of that, and prints their outcome.
func (o *agentOptions) forkAgent(home string, args []string) (int, error) {
	switch {
	case !o.branch:
		return 0, text.Hinted(errors.New("--fork: needs --branch: attempts cannot share the working directory"), "demesne agent --branch --fork 3 claude -p 'the task'")
	case o.Network.Ask:
		return 0, text.Hinted(errors.New("--fork: excludes --ask: attempts have no terminal"), "--allow-domain NAME allows a name without a question")
	}
	f := &forking{o: o, home: home, args: args, sig: stream.SignalsWatched(o.Quit)}
	// No credential for --setup: its requests to the model are forwarded without one.
	f.s = o.Session(func(runner.Spec) []runner.Route { return f.prepared.launch.Routes })
	defer f.s.Close()
	o.stamp = branchStamp()
	all, code, err := f.start()
	defer func() {
		for _, t := range all {
			t.close()
		}
		f.close()
	}()
	if early := f.sig.GaveUp(); early != 0 {
		return early, nil
	}
	if err != nil || code != 0 {
		return code, err
	}
	o.Say(fmt.Sprintf("agent: %d attempts write to %s/N.stdout and N.stderr", o.forks, f.dir.Path))
	var wg sync.WaitGroup
	for _, t := range all {
		wg.Go(t.run)
	}
	wg.Wait()
	code = all[0].code
	for _, t := range all {
		if t.err == nil {
			code = min(code, t.code)
		}
	}
	if out, err := o.Print(attemptsText(all)); err != nil {
		return out, err
	}
	return code, nil
}

// start prepares the sandbox, and forks it. The forks need the prepared sandbox no longer.
func (f *forking) start() (all []*attempt, code int, err error) {
	if f.dir, err = f.s.NewDirectory(""); err != nil {
		return nil, 0, err
	}
	o := *f.o
	if f.prepared, err = o.newAgentTerminal(f.home, f.args); err != nil {
		return nil, 0, err
	}
	if err = f.prepared.branch.Group(); err != nil {
		return nil, 0, err
	}
	if code, err = f.prepare(); code != 0 || err != nil {
		return nil, code, err
	}
	for n := 1; n <= f.o.forks && err == nil; n++ {
		t := &attempt{}
		all = append(all, t)
		err = t.open(f, n)
	}
	if err == nil {
		err = f.s.Remove(f.sig.Ctx, f.id)
	}
	return all, 0, err
}

func (f *forking) close() {
	if f.prepared != nil {
		f.prepared.close()
	}
	if f.dir == nil {
		return
	}
	for n := range f.o.forks + 1 {
		os.Remove(f.out(n)) // only if it is empty
	}
	f.dir.Undo()
}

// out returns the output directory of attempt n, or of the prepared sandbox.
func (f *forking) out(n int) string {
	if n == 0 {
		return filepath.Join(f.dir.Path, "setup")
	}
	return filepath.Join(f.dir.Path, strconv.Itoa(n))
}

// prepare makes the sandbox with the clone, and runs --setup in it. At the end it is stopped: its forks share its files.
func (f *forking) prepare() (code int, err error) {
	if f.id, err = f.empty(); err != nil {
		return 0, err
	}
	t, own := f.prepared, *f.o.App
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	own.Stdin, own.Stdout = null, own.Stderr // stdout has the table of outcomes
	t.branch.Tell(f.o.Say)
	t.o.App = &own
	script := t.branch.Prepare(f.o.setup)
	_, code, err = t.execute(script, func(j *launch.Execution) error {
		return j.Ended(f.s.Exec(j.Sig.Ctx, f.id, j.RunOptions(), t.o.Callbacks(j.Sig, &j.Stages, nil)))
	})
	if err == nil && code == 0 {
		err = f.stop(f.id)
	}
	return code, err
}

// empty makes a sandbox without files of its own. It is a fork, because a fork can be attached: it ends even if this
// process is killed.
func (f *forking) empty() (id string, err error) {
	t := f.prepared
	spec, err := t.spec()
	if err != nil {
		return "", err
	}
	r, err := f.o.NewRoot()
	if err != nil {
		return "", err
	}
	c := r.CreateOptions(spec)
	c.Egress.Routes, c.Out = t.launch.Routes, f.out(0)
	p := r.Progress()
	defer p.Done()
	first, err := f.s.Create(f.sig.Ctx, c, f.o.Callbacks(f.sig, &launch.Stages{}, p))
	if err != nil {
		return "", err
	}
	if err = f.stop(first.ID); err == nil {
		id, err = f.fork(f.s, first.ID, t, 0)
	}
	return id, errors.Join(err, f.s.Discard(first.ID))
}

// stop ends the processes of a sandbox, and keeps its files.
func (f *forking) stop(id string) error {
	err := f.s.With(f.sig.Ctx, func(e session.Engine) error { return e.Stop(f.sig.Ctx, id, 0) })
	if err != nil {
		err = fmt.Errorf("--fork: %w", err)
	}
	return err
}

// fork forks a stopped sandbox for t. The fork ends with s.
func (f *forking) fork(s *session.Service, from string, t *agentTerminal, n int) (id string, err error) {
	return s.ForkAttached(f.sig.Ctx, from, f.out(n), []runner.Mount{t.configMount()}, t.launch.Routes)
}

// open makes the fork of attempt n. Its streams are files beside its output directory.
func (t *attempt) open(f *forking, n int) (err error) {
	own, o := *f.o.App, *f.o
	o.App = &own
	for _, s := range []struct {
		at   **os.File
		name string
	}{{&own.Stdin, os.DevNull}, {&own.Stdout, f.out(n) + ".stdout"}, {&own.Stderr, f.out(n) + ".stderr"}} {
		if *s.at, err = os.OpenFile(s.name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return fsutil.Reason(err)
		}
		t.files = append(t.files, *s.at)
	}
	if t.t, err = o.newAgentTerminal(f.home, f.args); err != nil {
		return err
	}
	t.t.branch.Name = fmt.Sprintf("%s/attempt-%d", f.prepared.branch.Name, n)
	t.s = o.Session(func(runner.Spec) []runner.Route { return t.t.launch.Routes })
	t.id, err = f.fork(t.s, f.id, t.t, n)
	return err
}

// run makes the attempt. The fork is removed before its output is read.
func (t *attempt) run() {
	began := time.Now()
	argv := t.t.branch.Attempt(t.t.launch.Argv)
	j, code, err := t.t.execute(argv, func(j *launch.Execution) error { return t.t.startFork(j, t.s, t.id) })
	if t.code = code; err == nil {
		err = t.s.Discard(t.id)
	}
	if err == nil {
		err = t.t.branch.Fetch(t.t.o.Say, j.Result)
	}
	if t.took, t.err = time.Since(began), err; err != nil {
		t.t.o.Report("agent", err)
		t.code = max(t.code, app.ExitCode(err))
	}
}

func (t *attempt) close() {
	if t.s != nil {
		t.s.Close()
	}
	if t.t != nil {
		t.t.close()
	}
	for _, f := range t.files {
		f.Close()
	}
}

// startFork authorizes the routes, and runs the command in a fork, which that starts.
func (t *agentTerminal) startFork(j *launch.Execution, s *session.Service, id string) error {
	headers, next, err := t.agent.Renew(j.Sig.Ctx)
	if err != nil {
		return err
	}
	t.launch.Authorize(headers)
	cb := t.o.Callbacks(j.Sig, &j.Stages, nil)
	t.renewing(&cb, j, s, next)
	return j.Ended(s.Exec(j.Sig.Ctx, id, j.RunOptions(), cb))
}

// attemptsText returns a line for each attempt.
func attemptsText(all []*attempt) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ATTEMPT\tEXIT\tTIME\tCOST\tCOMMITS\tBRANCH")
	for i, t := range all {
		commits, branch := t.t.branch.Commits, t.t.branch.Name
		if commits == "" {
			commits, branch = "0", "-"
		}
		cost := costText(t.t.meter())
		fmt.Fprintf(w, "%d\t%d\t%v\t%s\t%s\t%s\n", i+1, t.code, t.took.Round(100*time.Millisecond), cost, commits, branch)
	}
	w.Flush()
	return b.String()
}

// meter counts the session's requests to its model.
func (t *agentTerminal) meter() *agents.Meter {
	m := agents.NewMeter(t.agent.Usage(), t.agent.Provider.Prices...)
	records := agents.Records{Path: t.record}
	records.Read(m.Add)
	return m
}

// costText says what requests cost, as far as the prices of their models are known.
func costText(m *agents.Meter) string {
	cost, unknown := fmt.Sprintf("$%.4f", m.Cost()), strings.Join(m.Unpriced(), ", ")
	switch {
	case unknown == "":
		return cost
	case m.Cost() == 0:
		return "unknown for " + text.SafeLine(unknown)
	}
	return cost + ", unknown for " + text.SafeLine(unknown)
}
