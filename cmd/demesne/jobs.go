package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"demesne/internal/termsafe"
	"demesne/runner/jobs"
)

// jobCommands returns the verbs about the jobs of run and exec --background.
func jobCommands() []command {
	return []command{
		{
			name: "jobs", usage: []string{"[--json | -q]"}, summary: "list background jobs",
			about: `Lists the jobs of this user, those of the MCP server too, the newest last. demesne gc forgets what
ended a week ago; outputs stay.`,
			examples: []example{{"all", "demesne jobs"}, {"cancel all", "demesne jobs -q | xargs -r demesne cancel"}},
			flags:    lsFlags, run: cmdJobs,
		},
		{
			name: "wait", usage: []string{"[--timeout DURATION] [--json] JOB…"}, summary: "wait for background jobs",
			about: `Waits until each job has ended, and exits as the command of the last one that went wrong did: its
exit code, 125 for a job that failed or was cancelled, 124 if --timeout came first.`,
			examples: []example{{"the one just started", "demesne wait $(demesne run --background -- make test)"}},
			flags:    waitFlags, run: cmdWait,
		},
		{
			name: "logs", usage: []string{"[--follow] JOB"}, summary: "print what a background job wrote",
			about: `Prints the stdout of a job on stdout, and its stderr on stderr, as far as it has got; of each, the last 64 MiB.
With --follow it goes on until the job has ended; the job runs on if logs is interrupted.`,
			examples: []example{{"the end of it", "demesne logs JOB | tail"}, {"as it comes", "demesne logs -f JOB"}},
			flags:    logsFlags, run: cmdLogs,
		},
		{
			name: "cancel", usage: []string{"JOB…"}, summary: "end background jobs",
			about:    "Ends jobs with everything they started. One that has ended stays as it is.",
			examples: []example{{"one", "demesne cancel JOB"}},
			flags:    noFlags, run: cmdCancel,
		},
	}
}

func waitFlags(o *options) flagSet {
	return join(flagSet{{group: groupCommand, long: "timeout", arg: "DURATION", set: durationFlag(&o.timeout),
		help: "wait no longer than 30s, 5m, 1h30m; a bare number is seconds (default for ever)"}}, jsonFlag(o))
}

func logsFlags(o *options) flagSet {
	return flagSet{{group: groupResult, long: "follow", short: 'f', set: on(&o.follow), help: "go on until the job has ended"}}
}

func cmdJobs(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 {
		return 0, fmt.Errorf("unexpected argument %q", args[0])
	}
	store, err := openJobs()
	if err != nil {
		return 0, err
	}
	all, err := store.List()
	switch {
	case err != nil:
		return 0, err
	case o.json:
		return a.printJSON(append([]*jobs.Job{}, all...))
	case o.quiet:
		var b strings.Builder
		for _, j := range all {
			b.WriteString(j.ID + "\n")
		}
		return a.print(b.String())
	}
	return a.print(jobListing(all, time.Now()))
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
			took = span(end.Sub(j.Started))
		}
		if j.Result != nil {
			exit = fmt.Sprint(j.Result.ExitCode)
		}
		rows = append(rows, []string{j.ID, string(j.Status), span(now.Sub(j.Created)), took, exit, clip(termsafe.Line(commandOf(j)), 60)})
	}
	return columns(rows)
}

func clip(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// forever is longer than any wait.
const forever = 365 * 24 * time.Hour

// withJobs calls each for every id in args. It returns the last exit code that was not 0.
func (a *app) withJobs(o *options, args []string, each func(context.Context, *jobs.Store, string) (int, error)) (int, error) {
	if len(args) == 0 {
		return 0, hinted(errors.New("needs the id of a job"), "demesne jobs lists them")
	}
	store, err := openJobs()
	if err != nil {
		return 0, err
	}
	sig := a.signalsWatched()
	last := 0
	for _, id := range args {
		code, err := each(sig.ctx, store, id)
		if gave := sig.gaveUp(); gave != 0 {
			return gave, nil
		}
		if errors.Is(err, jobs.ErrUnknown) {
			err = hinted(fmt.Errorf("unknown job %q", id), "demesne jobs lists jobs")
		}
		if err != nil {
			code = a.report(o.verb, err)
		}
		if code != 0 {
			last = code
		}
	}
	return last, nil
}

func cmdWait(a *app, o *options, args []string) (int, error) {
	most := o.timeout
	if most == 0 {
		most = forever
	}
	until := time.Now().Add(most)
	return a.withJobs(o, args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		j, err := store.Wait(ctx, id, time.Until(until))
		if err == nil && o.json {
			_, err = a.printJSON(j)
		}
		if err != nil || ctx.Err() != nil {
			return 0, err
		}
		return a.outcomeOf(j), nil
	})
}

// outcomeOf returns the exit code for j. It prints a reason that is not the command's own on stderr.
func (a *app) outcomeOf(j *jobs.Job) int {
	switch {
	case !j.Status.Over():
		a.say(fmt.Sprintf("wait: job %q: is still %s", j.ID, j.Status))
		return exitTimedOut
	case j.Status != jobs.Succeeded:
		a.say(fmt.Sprintf("wait: job %q: %s: %s", j.ID, j.Status, j.Message))
		return exitFailed
	}
	if line := reasonLine("wait", j.Result); line != "" {
		a.say(line)
	}
	a.tellBlocked(j.Result)
	return j.Result.ExitCode
}

func cmdLogs(a *app, o *options, args []string) (int, error) {
	if len(args) > 1 {
		return 0, fmt.Errorf("unexpected argument %q", args[1])
	}
	return a.withJobs(o, args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		if o.follow {
			_, err := store.Follow(ctx, id, jobKept, a.stdout, a.stderr)
			return 0, err
		}
		if _, err := store.Get(id); err != nil {
			return 0, err
		}
		out, err1 := store.Tail(id, "stdout", jobKept)
		errs, err2 := store.Tail(id, "stderr", jobKept)
		_, err3 := a.stdout.WriteString(out)
		_, err4 := a.stderr.WriteString(errs)
		return 0, errors.Join(err1, err2, err3, err4)
	})
}

func cmdCancel(a *app, o *options, args []string) (int, error) {
	return a.withJobs(o, args, func(ctx context.Context, store *jobs.Store, id string) (int, error) {
		_, err := store.Cancel(ctx, id)
		return 0, err
	})
}
