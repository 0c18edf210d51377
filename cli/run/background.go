package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// command returns the job's command and its arguments.
func (l jobLine) command() (app.Verb, []string) {
	switch {
	case l.Exec != nil:
		return Exec(), l.Exec
	case l.Map != nil:
		return Map(), l.Map
	case l.Worker != nil:
		return Worker(), l.Worker
	}
	return Run(), l.Run
}

// Attend is the main function of a job's process: of the job with an id, and for a list perhaps of a share of it. On a machine
// that does not see this one's files the words are jobs.RemoteWord and the job's request.
func Attend(a *app.App, id string, more ...string) int {
	t := attendant{jobTool: jobTool{a}}
	if id == jobs.RemoteWord && len(more) > 0 {
		return t.remote(more)
	}
	defer func() { t.leave() }()
	of := jobs.Share{Of: 1}
	var err error
	if len(more) == 2 {
		_, err = fmt.Sscan(strings.Join(more, " "), &of.First, &of.Of)
	}
	store, failed := t.Jobs()
	if err = errors.Join(err, failed); err == nil {
		err = store.AttendShare(context.Background(), id, of, runner.JobKept, t.run)
	}
	if err != nil {
		return t.Report(AttendVerb, err)
	}
	return 0
}

// run returns what a job does, or an item of it.
func (t *attendant) run(item jobs.Item) jobs.Run {
	return func(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
		res, err := t.do(ctx, item, what, out, errs)
		if item.N == 0 || err == nil {
			return res, err
		}
		fmt.Fprintf(errs, "demesne: item %d: %v\n", item.N, text.SafeLine(err.Error()))
		if code := app.ExitCode(err); code != app.ExitFailed { // the command's error
			return &runner.Result{Reason: runner.Exited, ExitCode: code, Detail: err.Error()}, nil
		}
		return res, err
	}
}

// attendant is the process of a job.
type attendant struct {
	jobTool
	settle     sync.Once // on the machine of a cluster
	left       func()
	allocation runner.Limits
	unsettled  error
}

// settled gives a process on a cluster's machine directories of its own. Several items use one runner there.
func (t *attendant) settled(list bool) (runner.Limits, error) {
	t.settle.Do(func() {
		if t.allocation, t.left, t.unsettled = t.SettleIn(); t.unsettled != nil || !list {
			return
		}
		s := t.Session(session.Options{})
		remove := t.left
		t.left = func() { s.Close(); remove() }
		t.unsettled = s.With(context.Background(), func(session.Engine) error { return nil })
	})
	return t.allocation, t.unsettled
}

func (t *attendant) leave() {
	if t.left != nil {
		t.left()
	}
}

// remote is Attend for words that begin with the job's request. An agent is another program's job. For a list, the directory, the
// machine's name and the share follow.
func (t *attendant) remote(words []string) (code int) {
	request := json.RawMessage(words[0])
	var err error
	if _, agent := session.TextOf(request); agent {
		code, err = app.Become(append([]string{"agent", AttendVerb, jobs.RemoteWord}, words...)...)
	} else if len(words) == 5 {
		var of jobs.Share
		if _, err = fmt.Sscan(words[3]+" "+words[4], &of.First, &of.Of); err == nil && of.Of > 0 {
			err = jobs.AttendRemoteShare(context.Background(), words[1], words[2], of, request, t.Stdout, t.run)
		}
	} else {
		code, err = jobs.AttendRemote(context.Background(), request, t.Stdout, t.run(jobs.Item{}))
	}
	if err != nil {
		return t.Report(AttendVerb, err)
	}
	return code
}

// do does a run or an exec whose streams go to out and errs, with its credentials redacted. Messages of
// demesne itself go there too.
func (t *attendant) do(ctx context.Context, item jobs.Item, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
	var line jobLine
	if err := json.Unmarshal(what, &line); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	if err := os.Chdir(line.Dir); err != nil {
		return nil, fmt.Errorf("go to %q: %w", line.Dir, fsutil.Reason(err))
	}
	if line.Worker != nil {
		return again(ctx, errs, func() (*runner.Result, error) { return t.once(ctx, item, line, out, errs) })
	}
	return t.once(ctx, item, line, out, errs)
}

// once does it once.
func (t *attendant) once(ctx context.Context, item jobs.Item, line jobLine, out, errs io.Writer) (_ *runner.Result, err error) {
	in, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	mine := *t.App
	mine.Stdin = in
	c, args := line.command()
	mine.Verb = c.Name
	o := &runOptions{Options: launch.Options{App: &mine}}
	flags, prepare := o.Flags, o.newRun
	each, kept := &mapOptions{}, &workerOptions{}
	switch c.Name {
	case "exec":
		exec := &execOptions{*o}
		o, flags, prepare = &exec.runOptions, exec.Flags, exec.newExec
	case "map":
		mine.Verb = "run"
		each.runOptions = *o
		o, flags = &each.runOptions, each.Flags
		prepare = func(args []string) (*command, error) { return o.newRun(withItem(args, item.Text)) }
	case "worker":
		mine.Verb = "run"
		kept.runOptions, kept.grace = *o, workerGrace
		o, flags = &kept.runOptions, kept.Flags
		prepare = func(args []string) (*command, error) { return o.newRun(kept.argv(args, item.Text)) }
	}
	args, err = c.With(flags()).Parse(args)
	if err == nil {
		err = o.Network.FindSecrets(&mine.Console)
	}
	switch {
	case err != nil:
		return nil, err
	case kept.hands.poll != nil:
		return kept.take(ctx, line.Worker, out, errs)
	}
	out, errs, done, err := each.into(item.N, out, errs)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, done()) }()
	var s sinks
	hidden := o.Network.Hidden()
	mine.Stdout, mine.Stderr = s.open(hidden.Writer(out)), s.open(hidden.Writer(errs))
	defer s.close()
	if s.err != nil {
		return nil, s.err
	}
	if o.on != "" && !app.Remote(o.on) { // a pod is a machine for itself
		allocation, err := t.settled(item.N > 0)
		if err != nil {
			return nil, err
		}
		o.Limits = o.Limits.Over(allocation)
	}
	r, err := prepare(args)
	if err != nil {
		return nil, err
	}
	defer r.Sig.Stop() // a later signal is for another item
	defer context.AfterFunc(ctx, func() { r.Interrupt(kept.grace) })()
	if _, err = r.finish(); err == nil && r.Result == nil {
		err = errors.New("interrupted before the start")
	}
	return r.Result, err
}

// sinks are pipes that this process copies to writers.
type sinks struct {
	ends   []*os.File
	copied sync.WaitGroup
	err    error
}

func (s *sinks) open(to io.WriteCloser) *os.File {
	r, w, err := os.Pipe()
	if err != nil {
		s.err = err
		return nil
	}
	s.ends = append(s.ends, w)
	s.copied.Go(func() {
		defer r.Close()
		io.Copy(to, r)
		to.Close()
	})
	return w
}

// close closes the pipes, and returns once everything has been copied.
func (s *sinks) close() {
	for _, w := range s.ends {
		w.Close()
	}
	s.copied.Wait()
}

// commandOf returns the command of a job for display. Only a job of the command line is a command line.
func commandOf(j *jobs.Job) string {
	text, agent := session.TextOf(j.Request)
	switch {
	case agent:
		return "agent: " + text
	case text != "":
		return text
	}
	var line jobLine
	if json.Unmarshal(j.Request, &line) != nil {
		return ""
	}
	_, args := line.command()
	rest := slices.DeleteFunc(slices.Clone(args), func(s string) bool { return s == "--background" || s == "--" })
	return strings.Join(rest, " ")
}
