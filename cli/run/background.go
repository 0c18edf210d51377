package run

import (
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
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// command returns the job's command and its arguments.
func (l jobLine) command() (app.Verb, []string) {
	if l.Exec != nil {
		return Exec(), l.Exec
	}
	return Run(), l.Run
}

// Attend is the main function of a job's process.
func Attend(a *app.App, id string) int {
	t := jobTool{a}
	store, err := t.Jobs()
	if err == nil {
		err = store.Attend(context.Background(), id, runner.JobKept, t.do)
	}
	if err != nil {
		return t.Report(AttendVerb, err)
	}
	return 0
}

// do does a run or an exec whose streams go to out and errs, with its credentials redacted. Messages of
// demesne itself go there too.
func (t jobTool) do(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
	var line jobLine
	if err := json.Unmarshal(what, &line); err != nil {
		return nil, fmt.Errorf("read job: %w", err)
	}
	if err := os.Chdir(line.Dir); err != nil {
		return nil, fmt.Errorf("go to %q: %w", line.Dir, fsutil.Reason(err))
	}
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
	if c.Name == "exec" {
		exec := &execOptions{*o}
		o, flags, prepare = &exec.runOptions, exec.Flags, exec.newExec
	}
	args, err = c.With(flags()).Parse(args)
	if err == nil {
		err = o.Network.FindSecrets(&mine.Console)
	}
	if err != nil {
		return nil, err
	}
	var s sinks
	hidden := o.Network.Hidden()
	mine.Stdout, mine.Stderr = s.open(hidden.Writer(out)), s.open(hidden.Writer(errs))
	defer s.close()
	if s.err != nil {
		return nil, s.err
	}
	if o.on != "" {
		leave, err := t.SettleIn(&o.Limits)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	r, err := prepare(args)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, r.Interrupt)()
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
