package sandbox

import (
	"context"
	"errors"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Limits returns demesne limits.
func Limits() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "limits", Usage: []string{"[--memory SIZE] [--cpus N] [--pids N] ID…"}, Summary: "change the limits of running sandboxes",
			About: `Changes limits of sandboxes while their commands run. A limit that no flag names stays as it is, and none can be removed.
The number of processes can be at most the first one, and on a machine without control groups the memory too. The disk
limit cannot change. demesne inspect shows the limits.`,
			Examples: []cmdline.Example{{Says: "give a build more memory", Line: "demesne limits --memory 4g build"}},
			Operand:  cmdline.Sandbox,
		},
		New: func(a *app.App) app.Options { return &limitsOptions{App: a} },
	}
}

type limitsOptions struct {
	*app.App
	limits runner.Limits
}

func (o *limitsOptions) Flags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupLimits, Long: "memory", Arg: "SIZE", Set: cmdline.Memory(&o.limits.Memory), Help: "memory limit, such as 512m or 2g"},
		{Group: app.GroupLimits, Long: "cpus", Arg: "N", Set: cmdline.CPUs(&o.limits.CPUs), Help: "limit of processor time, in processors, such as 0.5"},
		{Group: app.GroupLimits, Long: "pids", Arg: "N", Set: cmdline.PIDs(&o.limits.PIDs), Help: "limit of processes and threads"},
	}
}

func (o *limitsOptions) Run(args []string) (int, error) {
	if o.limits == (runner.Limits{}) {
		return 0, text.Hinted(errors.New("no limit given"), "demesne limits --memory 2g ID")
	}
	return eachSandbox(o.App, args, func(ctx context.Context, s *session.Service, id string) error {
		return s.With(ctx, func(eng session.Engine) error {
			return eng.ChangeLimits(ctx, runner.LimitChange{Sandbox: id, Limits: o.limits})
		})
	})
}
