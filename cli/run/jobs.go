package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
)

// Jobs returns the verbs about the jobs of run and exec --background.
func Jobs() []app.Verb {
	return []app.Verb{
		{
			Command: cmdline.Command{
				Name: "jobs", Usage: []string{"[--label NAME[=VALUE]]… [--json | -q] [JOB]"}, Summary: "list background jobs",
				About: `Lists the background jobs of this user, the newest last. Jobs of the MCP server are among them. demesne gc removes jobs a
week after their end; their output directories remain. With JOB it lists the items of a job of demesne map.`,
				Examples: []cmdline.Example{
					{Says: "list all jobs", Line: "demesne jobs"},
					{Says: "list the jobs with a label", Line: "demesne jobs --label nightly=build"},
					{Says: "cancel all jobs", Line: "demesne jobs -q | xargs -r demesne cancel"},
				},
			},
			New: func(a *app.App) app.Options { return &jobsOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "wait", Usage: []string{"[--timeout DURATION] [--json] JOB…"}, Summary: "wait for background jobs",
				About: `Waits until each job has ended. Exits 0 if every command exited 0, and otherwise with the code of the last one that did
not. The code is 125 for a job that could not run or was cancelled, and 124 if --timeout passed first.`,
				Examples: []cmdline.Example{{Says: "start a job and wait for it", Line: "demesne wait $(demesne run --background -- make test)"}},
			},
			New: func(a *app.App) app.Options { return &waitOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "logs", Usage: []string{"[--follow] JOB"}, Summary: "print the output of a background job",
				About: `Prints the output of a job so far: its stdout on stdout, and its stderr on stderr. The last 64 MiB of each are kept.
With --follow it continues until the job ends. The job continues if logs is interrupted.`,
				Examples: []cmdline.Example{
					{Says: "print the last lines", Line: "demesne logs JOB | tail"},
					{Says: "follow the output", Line: "demesne logs -f JOB"},
				},
			},
			New: func(a *app.App) app.Options { return &logsOptions{App: a} },
		},
		{
			Command: cmdline.Command{
				Name: "cancel", Usage: []string{"JOB…"}, Summary: "end background jobs",
				About:    "Ends jobs with all their processes. A job that has already ended does not change.",
				Examples: []cmdline.Example{{Says: "end one job", Line: "demesne cancel JOB"}},
			},
			New: func(a *app.App) app.Options { return &cancelOptions{App: a} },
		},
	}
}

type jobsOptions struct {
	*app.App
	json, quiet bool
	want        jobs.Traits
}

func (o *jobsOptions) Flags() cmdline.Flags {
	return slices.Concat(app.JSONFlag(&o.json), app.QuietFlag(&o.quiet, "print only the ids"), labelFlag(&o.want, "list only jobs with this label"))
}

func labelFlag(to *jobs.Traits, help string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "label", Arg: "NAME[=VALUE]", Repeat: true, Help: help, Set: func(s string) error {
		name, value, _ := strings.Cut(s, "=")
		if to.Labels == nil {
			to.Labels = map[string]string{}
		}
		to.Labels[name] = value
		return to.Check()
	}}}
}

// jobOptions are the flags of a command that can be a background job.
type jobOptions struct {
	background bool
	traits     jobs.Traits
}

// check refuses what only a job has. on is a cluster, whose command is a job too.
func (o *jobOptions) check(on string) error {
	if len(o.traits.Labels) > 0 && !o.background && on == "" {
		return text.Hinted(errors.New("--label: only a job has labels"), "--background starts a job")
	}
	return nil
}

func (o *jobOptions) flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupCommand, Long: "background", Set: cmdline.On(&o.background),
		Help: "start a background job, and print its id; see wait, logs, jobs and cancel"}},
		labelFlag(&o.traits, "label of the background job; jobs --label finds it"))
}

func (o *jobsOptions) Run(args []string) (int, error) {
	if len(args) > 1 {
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	}
	store, err := o.Jobs()
	if err != nil {
		return 0, err
	}
	var all []*jobs.Job
	if len(args) > 0 {
		all, err = store.Items(args[0])
		err = hinted(args[0], err)
	} else {
		all, err = store.List()
	}
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(j *jobs.Job) bool { return !j.Matches(o.want.Labels) })
	for _, j := range all {
		j.Status = j.Status.With(j.Result)
	}
	return app.PrintList(&o.Console, o.json, o.quiet, all, func(j *jobs.Job) string { return j.ID }, jobListing)
}

func jobListing(all []*jobs.Job, now time.Time) string {
	rows := [][]string{{"JOB", "STATUS", "AGE", "TOOK", "EXIT", "COMMAND"}}
	for _, j := range all {
		took, exit := "-", "-"
		if !j.Started.IsZero() {
			end := now
			if j.Status.Over() {
				end = j.Ended
			}
			took = app.Span(end.Sub(j.Started))
		}
		if j.Result != nil {
			exit = fmt.Sprint(j.Result.ExitCode)
		}
		rows = append(rows, []string{j.ID, string(j.Status), app.Span(now.Sub(j.Created)), took, exit, app.Clip(text.SafeLine(commandOf(j)), 60)})
	}
	if slices.ContainsFunc(all, func(j *jobs.Job) bool { return j.On != "" }) {
		rows[0] = slices.Insert(rows[0], 1, "ON")
		for i, j := range all {
			rows[i+1] = slices.Insert(rows[i+1], 1, text.SafeLine(cmp.Or(j.Node, j.On, app.PlaceLocal)))
		}
	}
	if slices.ContainsFunc(all, func(j *jobs.Job) bool { return len(j.Labels) > 0 }) {
		rows[0] = append(rows[0], "LABELS")
		for i, j := range all {
			rows[i+1] = append(rows[i+1], text.SafeLine(j.Line()))
		}
	}
	return app.Columns(rows)
}

// hinted adds the hint to the error for an unknown job.
func hinted(id string, err error) error {
	if errors.Is(err, jobs.ErrUnknown) {
		err = text.Hinted(fmt.Errorf("unknown job %q", id), "demesne jobs lists jobs")
	}
	return err
}

// forever is longer than any wait.
const forever = 365 * 24 * time.Hour

// each calls do for every id in args. It returns the last exit code that was not 0.
func (t jobTool) each(args []string, do func(context.Context, *jobs.Store, string) (int, error)) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("needs the id of a job"), "demesne jobs lists them")
	}
	store, err := t.Jobs()
	if err != nil {
		return 0, err
	}
	sig := stream.SignalsWatched(t.Quit)
	last := 0
	for _, id := range args {
		code, err := do(sig.Ctx, store, id)
		if gave := sig.GaveUp(); gave != 0 {
			return gave, nil
		}
		if err = hinted(id, err); err != nil {
			code = t.Report(t.Verb, err)
		}
		if code != 0 {
			last = code
		}
	}
	return last, nil
}

type waitOptions struct {
	*app.App
	timeout time.Duration
	json    bool
}

func (o *waitOptions) Flags() cmdline.Flags {
	return slices.Concat(cmdline.Flags{{Group: app.GroupCommand, Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&o.timeout),
		Help: "wait at most this time: 30s, 5m, 1h30m, or seconds (default no limit)"}}, app.JSONFlag(&o.json))
}

func (o *waitOptions) Run(args []string) (int, error) {
	until := time.Now().Add(cmp.Or(o.timeout, forever))
	return jobTool{o.App}.each(args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		j, err := store.Wait(ctx, id, time.Until(until))
		if err == nil && o.json {
			shown := *j
			shown.Status = j.Status.With(j.Result)
			_, err = o.PrintJSON(&shown)
		}
		if err != nil || ctx.Err() != nil {
			return 0, err
		}
		return jobTool{o.App}.outcome(j), nil
	})
}

// outcome returns the exit code for j. It prints a reason that is not the command's own on stderr.
func (t jobTool) outcome(j *jobs.Job) int {
	switch {
	case j.Items > 0 && j.Status == jobs.Succeeded:
		t.Say(fmt.Sprintf("map: job %q: %s", j.ID, j.Message))
		return j.Result.ExitCode
	case !j.Status.Over():
		t.Say(fmt.Sprintf("wait: job %q is still %s", j.ID, j.Status))
		return app.ExitTimedOut
	case j.Status != jobs.Succeeded:
		t.Say(fmt.Sprintf("wait: job %q: %s: %s", j.ID, j.Status, j.Message))
		return app.ExitFailed
	}
	if line := app.ReasonLine("wait", j.Result); line != "" {
		t.Say(line)
	}
	if j.Message != "" && j.Message != j.Result.Detail { // output that is lost
		t.Say(fmt.Sprintf("wait: job %q: %s", j.ID, j.Message))
	}
	launch.TellBlocked(&t.App.Console, j.Result, false)
	return j.Result.ExitCode
}

type logsOptions struct {
	*app.App
	follow bool
}

func (o *logsOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "follow", Short: 'f', Set: cmdline.On(&o.follow), Help: "continue until the job ends"}}
}

func (o *logsOptions) Run(args []string) (int, error) {
	if len(args) > 1 {
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	}
	return jobTool{o.App}.each(args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		if o.follow {
			_, err := store.Follow(ctx, id, runner.JobKept, o.Stdout, o.Stderr)
			return 0, err
		}
		j, err := store.Get(id)
		if err == nil {
			err = store.Fetch(ctx, id)
		}
		if err != nil {
			return 0, err
		}
		ids := []string{id}
		if j.Items > 0 {
			ids = nil
			for n := range j.Items {
				ids = append(ids, jobs.ItemID(id, n+1))
			}
		}
		for _, id := range ids {
			out, err1 := store.Tail(id, "stdout", runner.JobKept)
			errs, err2 := store.Tail(id, "stderr", runner.JobKept)
			_, err3 := o.Stdout.WriteString(out)
			_, err4 := o.Stderr.WriteString(errs)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				return 0, err
			}
		}
		return 0, nil
	})
}

type cancelOptions struct {
	*app.App
}

func (o *cancelOptions) Run(args []string) (int, error) {
	return jobTool{o.App}.each(args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		_, err := store.Cancel(ctx, id)
		return 0, err
	})
}

// AttendVerb is the argument that starts a job's process. It is not a command for users: only jobs.Store.Start
// starts such a process.
const AttendVerb = "attend-job"

// jobLine is a job of demesne as stored on disk: the command line, and its working directory. demesne-mcp
// stores its jobs in another form.
type jobLine struct {
	jobs.Traits
	Dir    string   `json:"dir"`
	Run    []string `json:"run,omitempty"`    // arguments of demesne run
	Exec   []string `json:"exec,omitempty"`   // or arguments of demesne exec
	Map    []string `json:"map,omitempty"`    // or arguments of demesne map
	Worker []string `json:"worker,omitempty"` // or arguments of demesne worker
}

// jobTool adds to app the steps that the commands about background jobs share.
type jobTool struct{ *app.App }

// start starts a process that does a run or an exec, and prints the job's id. The caller has checked
// everything that needs no sandbox.
func (t jobTool) start(o *runOptions) (int, error) {
	j, err := t.launch(o, func(store *jobs.Store, self string, line jobLine) (*jobs.Job, error) {
		return store.Start([]string{self, AttendVerb}, line)
	})
	if err != nil {
		return 0, err
	}
	return t.Print(j.ID + "\n")
}

// launch calls start with the line of a job, and the program that executes it.
func (t jobTool) launch(o *runOptions, start func(store *jobs.Store, self string, line jobLine) (*jobs.Job, error)) (*jobs.Job, error) {
	flag := "--background"
	if o.on != "" {
		flag = "--on"
	}
	switch {
	case o.Interactive || o.TTY || o.Network.Ask:
		return nil, fmt.Errorf("%s: cannot be combined with -i, -t or --ask", flag)
	case o.JSON && o.JSONFile == "":
		return nil, text.Hinted(fmt.Errorf("%s: cannot be combined with --json, except --json=FILE", flag), "demesne wait --json prints the result after the job's end")
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	if app.Remote(o.on) {
		dir = "/" // that machine does not have this one
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	store, err := t.Jobs()
	if err != nil {
		return nil, err
	}
	line := jobLine{Traits: o.traits, Dir: dir}
	switch o.Verb {
	case "exec":
		line.Exec = o.Args
	case "map":
		line.Map = o.Args
	case "worker":
		line.Worker = o.Args
	default:
		line.Run = o.Args
	}
	return start(store, self, line)
}
