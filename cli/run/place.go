package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
)

// onFlag is a flag of run.
func onFlag(to *string) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "on", Arg: "PLACE", Set: func(s string) (err error) { *to, err = app.ParsePlace(s); return err },
		Help: "run on a machine of a cluster, as a job: slurm, slurm:PARTITION, kubernetes, kubernetes:NAMESPACE, ray, ray:ADDRESS, or local (the default)"}}
}

// newRemote is newRun for a machine that does not see this one's files: that machine checks the paths of the line.
func (o *runOptions) newRemote(args []string) (*command, error) {
	e, err := o.NewExecution(args)
	return &command{Execution: e, o: o}, err
}

// asJob starts the job of a line with --on or a list. Without --background it copies the job's output, and returns its exit
// code; a signal cancels the job.
func (t jobTool) asJob(o *runOptions, c *command, list jobs.List) (int, error) {
	switch {
	case c.script != nil && c.script.temporary != "":
		c.script.close()
		return 0, errors.New("a program from stdin cannot be combined with --on and map")
	case o.on == "":
		return t.launched(o, c, func(store *jobs.Store, self string, line jobLine) (*jobs.Job, error) {
			return store.StartList([]string{self, AttendVerb}, line, list)
		})
	case o.Key != "" || o.Name != "" || len(o.Network.Publish) > 0 || o.Network.Group != "":
		return 0, errors.New("--on: cannot be combined with --key, --name, --publish and --group, which name something of this machine")
	}
	if vars := o.Network.SecretVariables(); len(vars) > 0 {
		return 0, text.Hinted(fmt.Errorf("--on: the secret of variable %q would be written to the cluster's disk", vars[0]), "keep it where that machine finds it: --secret NAME=vault:NAME or NAME=file:PATH")
	}
	return t.launched(o, c, func(store *jobs.Store, self string, line jobLine) (*jobs.Job, error) {
		return store.StartOn(c.Sig.Ctx, o.on, jobs.Process{
			Argv: []string{self, AttendVerb}, Shared: t.Shared(), Env: t.Set(bare(o.Variables)),
			Needs: jobs.Needs{Memory: max(o.Limits.Memory, 0), CPUs: o.Limits.CPUs, Time: c.Cmd.Timeout},
			List:  list,
		}, line)
	})
}

// launched starts a job, and waits for its end without --background.
func (t jobTool) launched(o *runOptions, c *command, start func(*jobs.Store, string, jobLine) (*jobs.Job, error)) (int, error) {
	j, err := t.launch(o, start)
	if err != nil {
		return 0, err
	}
	if o.background {
		return t.Print(j.ID + "\n")
	}
	store, err := t.Jobs()
	if err != nil {
		return 0, err
	}
	store.Waits = func(reason string) { t.Say(fmt.Sprintf("%s: job %q waits: %s", t.Verb, j.ID, reason)) }
	var out, errs io.Writer = o.Stdout, o.Stderr
	if o.unseen {
		out, errs = io.Discard, io.Discard
	}
	if j, err = store.Follow(c.Sig.Ctx, j.ID, runner.JobKept, out, errs); err != nil {
		return 0, err
	}
	if code := c.Sig.GaveUp(); code != 0 {
		_, err = store.Cancel(context.WithoutCancel(c.Sig.Ctx), j.ID)
		return code, err
	}
	return t.outcome(j), nil
}

// bare returns the names of variables that --env gives without a value.
func bare(variables []string) []string {
	return slices.DeleteFunc(slices.Clone(variables), func(e string) bool { return strings.Contains(e, "=") })
}
