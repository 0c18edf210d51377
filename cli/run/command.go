package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"demesne/cli/launch"
	"demesne/internal/fsutil"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// runOptions are the options of run and exec.
type runOptions struct {
	launch.Options
	codeOptions
	stepOptions
	jobOptions
	docker   bool
	queue    bool
	setup    string // shell text that prepares a new sandbox
	on       string // --on: where the command runs as a job; empty: here
	manifest bool   // of out
	unseen   bool   // the output of the job is not copied
}

// codeOptions describe code that a command line names in place of a command.
type codeOptions struct {
	language     languages.Language // of --language; zero: the file's name tells
	dependencies []string
}

// stepOptions are a list of commands in place of one.
type stepOptions struct {
	commands string // file with the list, or -; empty: none
	goOn     bool
	list     []runner.Step
}

// command is a command of run or exec that passed every check that needs no sandbox.
type command struct {
	*launch.Execution
	o      *runOptions
	script *script         // nil: the command is not a script
	tool   *runner.Command // installs dependencies first; nil: none
	run    func() error
}

func (c *command) finish() (int, error) { return c.Execution.Finish(c.run()) }

func (c *command) runOptions() session.RunOptions {
	opts := c.Execution.RunOptions()
	opts.Queue = c.o.queue
	return opts
}

// scripted returns a command, which may be a script.
func (o *runOptions) scripted(args, argv []string, run func(*command) error) (*command, error) {
	sc, err := o.findScript(args)
	c := &command{o: o, script: sc}
	if err == nil {
		c.tool, err = o.installer(&o.Options, sc, args)
	}
	if err == nil {
		c.Execution, err = o.NewExecution(argv)
	}
	if err != nil {
		sc.close()
		return nil, err
	}
	if c.tool != nil {
		c.tool.Env = slices.Concat(c.tool.Env, c.Cmd.Env)
	}
	c.Missing = c.missingFile
	if sc != nil {
		c.Missing = func() error { return sc.failed(c.Execution) }
		c.After = func(r *runner.Result) { sc.tell(&o.Console, r.ExitCode) }
	}
	c.run = func() error {
		defer sc.close()
		return run(c)
	}
	return c, nil
}

// missingFile explains that neither the sandbox nor this machine has the script that the first word names.
func (c *command) missingFile() error {
	if argv := c.Cmd.Argv; len(argv) > 0 && isScriptName(argv[0]) && !fsutil.Exists(argv[0]) {
		return ipc.Errorf(ipc.CodeCommandNotFound, "execute %q: the sandbox has no such program, and this machine no such file", argv[0])
	}
	return nil
}

// isScriptName reports whether a name has the form of a file in some language.
func isScriptName(name string) bool {
	l, known := languages.OfFile(name)
	return known && l.Run != nil
}

// findScript returns the script that the first word of a command names, or nil if that is an ordinary command. It is
// a script if it is a regular file of this machine with a name of the table, or with --language any one. Text of -c, and
// arguments of a given entrypoint, for a dev container or after services, are not scripts.
func (o *runOptions) findScript(args []string) (*script, error) {
	forced := o.language.Name != ""
	if forced && len(o.dependencies) > 0 && (len(args) == 0 || args[0] != "-" && !fsutil.Exists(args[0])) {
		forced = false // only the dependencies decide the language
	}
	if o.Shell != nil || o.Entrypoint != nil || o.Asked != nil || o.Services != nil || len(args) == 0 {
		if forced {
			return nil, errors.New("--language: needs a file or - as the command, without -c, --entrypoint, --devcontainer and --init")
		}
		return nil, nil
	}
	s := &script{name: args[0], lang: o.language, only: forced}
	if forced && s.name == "-" {
		return s, s.takeStdin(o)
	}
	if !forced && !isScriptName(s.name) {
		return nil, nil
	}
	switch info, err := os.Stat(s.name); {
	case forced && err != nil:
		return nil, fmt.Errorf("script %q: %w", s.name, fsutil.Reason(err))
	case forced && !info.Mode().IsRegular():
		return nil, fmt.Errorf("script %q: is not a regular file", s.name)
	case err != nil || !info.Mode().IsRegular():
		return nil, nil
	default:
		s.executable = !forced && info.Mode()&0o111 != 0
	}
	if err := s.look(); err != nil {
		return nil, fmt.Errorf("script %q: %w", s.name, fsutil.Reason(err))
	}
	return s, nil
}

// takeStdin puts stdin into a file of a new directory.
func (s *script) takeStdin(o *runOptions) error {
	if o.Interactive || o.TTY || o.background {
		return errors.New("stdin has the program: it cannot be combined with -i, -t or --background")
	}
	code, err := o.ReadCode("-")
	if err != nil {
		return fmt.Errorf("read stdin: %w", err)
	}
	if s.temporary, err = os.MkdirTemp("", "demesne-stdin-"); err != nil {
		return err
	}
	s.real = filepath.Join(s.temporary, "stdin"+s.lang.Extensions[0])
	return os.WriteFile(s.real, code, 0o644)
}

// showScript makes the script visible in the sandbox of a run: as an input, or for the sandbox of a key as a copy.
func (j *command) showScript(s *session.Service, spec *runner.Spec) error {
	if j.o.Key == "" {
		return j.script.handIn(spec, &j.o.Options)
	}
	j.script.locate(*spec, j.o.Mounts.Shown())
	if id, err := s.OfKey(j.Sig.Ctx, j.o.Key); err == nil && !j.o.Replace && !j.script.shown {
		if info, err := s.Inspect(j.Sig.Ctx, id); err == nil {
			j.script.locate(info.Spec, info.Spec.Mounts)
		}
	}
	return j.script.readIn()
}

// copyingScript returns callbacks that copy a script into the sandbox of a key before the command starts.
func (j *command) copyingScript(cb session.Callbacks) session.Callbacks {
	if j.script == nil || j.o.Key == "" {
		return cb
	}
	tell := cb.Made
	cb.Made = func(b *session.Sandbox) {
		tell(b)
		j.Problem = j.script.copyIn(j.Sig.Ctx, b)
	}
	return cb
}

// bringScript opens a sandbox that exists, and makes the script visible in it.
func (j *command) bringScript(s *session.Service, id string, cb session.Callbacks) error {
	sb, err := s.Open(j.Sig.Ctx, id, cb)
	if err != nil {
		return err
	}
	info, err := s.Inspect(j.Sig.Ctx, sb.ID)
	if err != nil {
		return err
	}
	j.script.locate(info.Spec, info.Spec.Mounts)
	if err := j.script.readIn(); err != nil {
		return err
	}
	return j.script.copyIn(j.Sig.Ctx, sb)
}
