package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/cli/stream"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// Create returns demesne create.
func Create() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "create", Usage: []string{"[flags]"}, Summary: "make a persistent sandbox",
			About: `Makes a sandbox, runs nothing in it, and prints its id. The sandbox exists until demesne rm removes it or its time
is up.

With --key it prints the id of the sandbox that has the key, and makes one only if it does not exist. A flag that is left
out takes that sandbox's value. A flag with another value is an error that names the flag, unless --replace is given.`,
			Examples: []cmdline.Example{
				{Says: "make a sandbox with a name, for a directory of sources", Line: "demesne create --name build --image go --workspace ~/src/app"},
				{Says: "run a command in it", Line: "demesne exec build -- make"},
				{Says: "get the same sandbox each time", Line: "demesne create --key $PWD --workspace ."},
				{Says: "replace it by one with other limits and no files", Line: "demesne create --key $PWD --workspace . --memory 2g --replace"},
			},
			Habits: runHabits,
		},
		New: func(a *app.App) app.Options { return &createOptions{Options: launch.Options{App: a}} },
	}
}

type createOptions struct {
	launch.Options
	codeOptions
	docker bool
}

func (o *createOptions) Flags() cmdline.Flags {
	user := *o.CommandFlags().Long("user")
	user.Group = app.GroupSandbox
	language := o.languageFlag()
	language[0].Group, language[0].Help = app.GroupSandbox, "language of --dependency"
	trace := *o.ResultFlags().Long("trace")
	return slices.Concat(o.RootFlags(), o.BuildFlag(), o.SandboxFlags(), o.dependencyFlag(), app.DockerFlag(&o.docker), language, o.InteriorFlags(), o.MountFlags(), cmdline.Flags{user},
		o.KeyFlag("return the sandbox that was made with this key, if it exists; omitted flags keep its values, and a differing one is an error"),
		o.ReplaceFlag(), o.ShareFlag(), o.LifeFlags(), o.Network.Flags(), o.Network.GroupFlag(), o.Network.SecretFlags(), o.LimitFlags(), app.JSONFlag(&o.JSON), cmdline.Flags{trace})
}

func (o *createOptions) Run(args []string) (int, error) {
	if len(args) > 0 {
		return 0, text.Hinted(fmt.Errorf("unexpected argument %q", args[0]),
			"create runs no command; afterwards use demesne exec ID -- %s", args[0])
	}
	spec, err := o.Spec()
	if err != nil {
		return 0, err
	}
	spec.Lifetime = runner.Persistent
	if err := o.OpenDevcontainer(nil); err != nil {
		return 0, err
	}
	tool, err := o.installer(&o.Options, nil, nil)
	if err != nil {
		return 0, err
	}
	r, err := o.NewRoot()
	if err != nil {
		return 0, err
	}
	sig := stream.WatchSignals(o.Quit, &stream.Terminal{Fd: -1})
	began, st := time.Now(), &launch.Stages{}
	sess := o.Session(nil)
	defer sess.Close()
	mounts, err := o.Mounts.Place(o.App, &spec)
	if err != nil {
		return 0, err
	}
	defer mounts.Undo()
	p := r.Progress()
	c := r.CreateOptions(spec)
	c.Docker = o.docker
	b, err := sess.Create(sig.Ctx, c, mounts.Recorded(o.Callbacks(sig, st, p)))
	p.Done()
	if code := sig.GaveUp(); err != nil && code != 0 {
		return code, nil
	}
	if err != nil {
		return 0, err
	}
	trace := st.All(began)
	if o.Trace {
		launch.PrintTrace(o.Stderr, trace)
	}
	mounts.TellApart()
	if err := o.install(sig.Ctx, &o.Options, sess, b.ID, tool); err != nil {
		return 0, err
	}
	code, err := r.Hooks(sig.Ctx, sess, b)
	if code != 0 || err != nil {
		return code, err
	}
	code, err = o.tellCreated(sig.Ctx, b, trace)
	if err == nil { // the caller knows the id: make the sandbox outlive this process
		_, err = sess.Open(sig.Ctx, b.ID, session.Callbacks{})
	}
	return code, err
}

// tellCreated prints the id of a new sandbox, or all about it.
func (o *createOptions) tellCreated(ctx context.Context, b *session.Sandbox, trace []runner.Stage) (int, error) {
	if !o.JSON {
		return o.Print(b.ID + "\n")
	}
	if err := b.Account(ctx); err != nil {
		return 0, err
	}
	return o.PrintJSON(created{b.ID, runner.InGroup(o.Name, o.Network.Group), b.Out, b.Replaced, b.Receipt, trace})
}

// created is the output of create --json.
type created struct {
	Sandbox  string          `json:"sandbox"`
	Name     string          `json:"name,omitempty"`
	Out      string          `json:"output_dir"`
	Replaced bool            `json:"replaced,omitempty"` // an older sandbox with this key was removed
	Receipt  *runner.Receipt `json:"receipt,omitempty"`
	Trace    []runner.Stage  `json:"trace,omitempty"`
}
