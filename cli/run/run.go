// Package run has the verbs that run commands in sandboxes: run, exec, create and attach, those about background jobs, and code
// validate. mcp wrap is a run whose streams package mcp/filter filters.
//
//	run.go, exec.go, create.go, attach.go    the verbs; package launch makes the sandbox and carries the streams
//	script.go, dependencies.go, steps.go     a program's text in place of a command; its packages; a list of commands
//	background.go, jobs.go                   a job is a process that executes the same line again: see attend
//	code.go                                  the syntax of code, by a parser in a sandbox
//	wrap.go                                  an MCP server of another vendor
//
// A command of the caller is one argv from here to execve(2). A script is an input, or a copy below /tmp of a sandbox that
// exists; the sandbox's own interpreter runs it. Whatever needs no sandbox is checked before one is made.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/images/oci"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// Run returns demesne run.
func Run() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "run", Usage: []string{"[flags] [--] CMD [ARG…]", "[flags] -c TEXT [ARG…]", "[flags] --image NAME [--] [ARG…]", "[flags] FILE.py|.js|.ts|.R|.sh|… [ARG…]", "[flags] --language NAME -", "[flags] --commands FILE|-"},
			Summary: "run a command in a one-shot sandbox",
			About: `Makes a sandbox, runs CMD in it, and removes the sandbox. Inside, /in has the inputs, /out is an output directory
that remains, and CMD starts in /workspace. Everything else is read-only, or discarded at the end.

There is no network except a loopback interface, unless flags allow destinations. At the end stderr lists the
connections that were denied.

CMD can be a file of this machine with the name of a program's text, such as app.py, app.js, app.ts, app.R, app.sh or
app.go. It is shown read-only at /in, or in place if it lies in a mount or the workspace. The first interpreter that
exists in the sandbox runs it. A #! line or an executable file wins over the name. A program of the sandbox wins over
the file.
With an image that has an entrypoint, a file that a mount or the workspace shows is the entrypoint's argument.
--language NAME says that CMD is a file, or with - stdin.

With --image, the environment, entrypoint, command, working directory and user are the image's, unless flags
override them, as in docker run.

The exit code is CMD's. With --commands it is the first failure's. demesne help exit-codes lists the codes of demesne itself.`,
			Examples: []cmdline.Example{
				{Says: "run a command with arguments", Line: "demesne run -- ls -l /"},
				{Says: "run shell text, and keep a file", Line: `demesne run --out result -c 'date > /out/now'`},
				{Says: "read an input; allow one minute and half a gigabyte", Line: "demesne run --in data.csv --timeout 1m --memory 512m -- wc -l /in/data.csv"},
				{Says: "run as part of a pipe", Line: "cat access.log | demesne run -i -- sort -u > sorted"},
				{Says: "run a file by its language's interpreter, with a package of its registry", Line: "demesne run --dependency requests==2.32 app.py --verbose"},
				{Says: "run several commands in one sandbox, until one fails", Line: "demesne run --workspace . --commands steps.json"},
				{Says: "get an interactive shell", Line: "demesne run -it -- bash"},
				{Says: "use the persistent sandbox of a key", Line: "demesne run --key app --workspace . -- make"},
				{Says: "run on an image, which is pulled if it is not here", Line: "demesne run --image python:3.12 -- python -c 'print(1)'"},
				{Says: "allow package registries and one other name", Line: "demesne run --egress package-managers --allow-domain api.example.com:443 -- npm install"},
				{Says: "get output, exit code and receipt as JSON", Line: "demesne run --json --require full -- make test"},
			},
			Operand: cmdline.Argv,
			Habits:  runHabits,
		},
		New: func(a *app.App) app.Options { return &runOptions{Options: launch.Options{App: a}} },
	}
}

func (o *runOptions) Flags() cmdline.Flags {
	setup := cmdline.Flags{{Group: app.GroupCommand, Long: "setup", Arg: "COMMAND", Set: cmdline.Text(&o.setup),
		Help: "first run this shell text in the new sandbox, such as 'npm ci'; its output goes to stderr"}}
	return slices.Concat(app.ConfigFlag(), o.CommandFlags(), setup, o.languageFlag(), stepFlags(&o.stepOptions), o.EnvFileFlag(), o.EntrypointFlag(), o.jobOptions.flags(), onFlag(&o.on),
		o.RootFlags(), o.BuildFlag(), o.SandboxFlags(), o.dependencyFlag(), app.DockerFlag(&o.docker), o.InteriorFlags(), o.MountFlags(), o.Mounts.CowFlag(),
		o.KeyFlag("run in the persistent sandbox of this key; make it if it does not exist"), o.ReplaceFlag(),
		queueFlag(&o.queue), o.LifeFlags(), o.Network.Flags(), o.Network.GroupFlag(), o.Network.SecretFlags(), o.Network.AskFlags(),
		o.LimitFlags(), o.ResultFlags(), manifestFlag(&o.manifest))
}

func manifestFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "manifest", Set: cmdline.On(to),
		Help: "write a manifest: the SHA-256 sum of each file in /out, beside that directory"}}
}

// queueFlag is a flag of exec and, with --key, of run.
func queueFlag(to *bool) cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupCommand, Long: "queue", Set: cmdline.On(to),
		Help: "run after all earlier --queue commands for this sandbox, calls of agents included"}}
}

func (o *runOptions) Run(args []string) (int, error) {
	if err := o.check(o.on); err != nil {
		return 0, err
	}
	prepare := o.newRun
	if app.Remote(o.on) {
		prepare = o.newRemote
	}
	r, err := prepare(args)
	switch {
	case err != nil:
		return 0, err
	case o.on != "":
		return jobTool{o.App}.asJob(o, r, jobs.List{})
	case o.background:
		return jobTool{o.App}.start(o)
	}
	return r.finish()
}

func (o *runOptions) newRun(args []string) (*command, error) {
	spec, err := o.Spec()
	switch {
	case err != nil:
		return nil, err
	case o.Key != "" && o.manifest:
		return nil, errors.New("--manifest: cannot be combined with --key")
	case o.Key != "":
		spec.Lifetime = runner.Persistent
	case o.TTL != 0 || o.MaxAge != 0 || o.PauseIdle != 0:
		return nil, text.Hinted(errors.New("--ttl, --max-age and --pause-idle: a run's sandbox ends with its command"), "--key KEY makes a persistent sandbox")
	}
	if o.queue && o.Key == "" {
		return nil, text.Hinted(errors.New("--queue: a sandbox of one command has no queue"), "--key KEY names a persistent sandbox")
	}
	if err := o.Mounts.Check(); err != nil {
		return nil, err
	}
	if err := o.Mounts.CanAsk(o.Key != "" || o.background); err != nil {
		return nil, err
	}
	if err := o.OpenDevcontainer(args); err != nil {
		return nil, err
	}
	r, err := o.NewRoot()
	if err != nil {
		return nil, err
	}
	if err := o.readSteps(args); err != nil {
		return nil, err
	}
	var argv []string
	if o.list == nil {
		if argv, err = r.Argv(r.Config(), args); err != nil {
			return nil, err
		}
	}
	if err := launch.CanAsk(&o.Console, &o.Network, &o.ProcessOptions); err != nil {
		return nil, err
	}
	return o.scripted(args, argv, func(c *command) error { return c.start(spec, r, args) })
}

func (j *command) start(spec runner.Spec, r *launch.Root, args []string) error {
	s := j.o.Session(nil)
	defer s.Close()
	var err error
	if j.Placed, err = j.o.Mounts.Place(j.o.App, &spec); err != nil {
		return err
	}
	defer j.Placed.Undo()
	if j.script != nil {
		if err := j.showScript(s, &spec); err != nil {
			return err
		}
	}
	p := r.Progress()
	defer p.Done()
	opts := j.runOptions()
	opts.Complete = func(c oci.Config, cmd *runner.Command) (err error) {
		cmd.Argv, err = r.Wrapped(&c, args)
		if err == nil && j.script != nil {
			j.script.command(cmd, c, cmd.Argv, args)
		}
		return err
	}
	// A path that some output names stays, though it is empty.
	opts.Manifest, opts.KeepEmpty = j.o.manifest, j.o.JSON || j.o.background || j.o.manifest
	cb := j.copyingScript(j.Placed.Recorded(j.o.Callbacks(j.Sig, &j.Stages, p)))
	c := r.CreateOptions(spec)
	c.Docker = j.o.docker
	if j.tool == nil && j.o.list == nil && j.o.setup == "" {
		return j.Ended(s.Run(j.Sig.Ctx, c, opts, cb))
	}
	return j.Ended(nil, j.within(s, c, cb, func(id string, image oci.Config) error {
		cb.Made = nil // it was called
		if j.o.list != nil {
			return j.steps(s, id, cb)
		}
		if err := opts.Complete(image, &opts.Command); err != nil {
			return err
		}
		opts.Complete = nil
		_, err := s.Exec(j.Sig.Ctx, id, opts, cb)
		return err
	}))
}

// within makes the sandbox of c, or finds the one with its key, installs the dependencies there, and calls do with its id and
// the image's configuration. Without a key it removes the sandbox then.
func (j *command) within(s *session.Service, c session.CreateOptions, cb session.Callbacks, do func(id string, image oci.Config) error) (err error) {
	if c.Spec.Key == "" {
		c.Spec.Lifetime = runner.Attached
	}
	var image oci.Config
	configured := c.Configured
	c.Configured = func(c *session.CreateOptions, i oci.Config) error {
		if image = i; configured != nil {
			return configured(c, i)
		}
		return nil
	}
	sb, err := s.Create(j.Sig.Ctx, c, cb)
	if err != nil {
		return err
	}
	if c.Spec.Key == "" {
		defer func() {
			err = errors.Join(err, s.Remove(context.WithoutCancel(j.Sig.Ctx), sb.ID))
			if j.o.manifest && j.Result != nil {
				var failed error
				_, j.Manifest, failed = session.WriteManifest(sb.Out)
				err = errors.Join(err, failed)
			}
		}()
	}
	if err := j.prepare(s, sb); err != nil {
		return err
	}
	return do(sb.ID, image)
}

// prepare executes --setup in a new sandbox, and installs the dependencies. If the setup fails, nothing else runs, and a sandbox
// with a key is removed.
func (j *command) prepare(s *session.Service, sb *session.Sandbox) error {
	if j.o.setup != "" && !sb.Existing {
		c := j.runOptions().Command
		c.Argv, c.Else, c.TTY = []string{"/bin/sh", "-c", j.o.setup}, nil, nil
		done, err := s.Exec(j.Sig.Ctx, sb.ID, session.RunOptions{Command: c, Stdout: j.o.Stderr, Stderr: j.o.Stderr}, session.Callbacks{})
		if err == nil && done.ExitCode != 0 {
			err = fmt.Errorf("setup: exit code %d", done.ExitCode)
		}
		if err != nil && j.o.Key != "" {
			err = errors.Join(err, s.Discard(sb.ID))
		}
		if err != nil {
			return err
		}
	}
	return j.o.install(j.Sig.Ctx, &j.o.Options, s, sb.ID, j.tool)
}
