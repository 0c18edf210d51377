package run

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
)

// hands is a vendor whose hosted agents use the sandboxes of workers: see docs/guide/worker.md.
type hands struct {
	name    string
	flags   []string // of the verb
	item    []string // more flags for an item
	command []string // in the sandbox, before the caller's arguments
	poll    []string // a program of this machine that takes work, and starts the program whose path is its last argument for each item; nil: none
	token   string   // the variable for an item's own token, in place of the one for the whole queue
}

// vendors are the rows of --for. A secret has one host, and the placeholder in the sandbox is worthless elsewhere.
func vendors() []hands {
	return []hands{{
		name:  "claude",
		flags: []string{"--allow-domain", "api.anthropic.com:443", "--secret", "ANTHROPIC_ENVIRONMENT_KEY", "--secret-for", "ANTHROPIC_ENVIRONMENT_KEY=api.anthropic.com:Authorization"},
		item:  []string{"--env", "ANTHROPIC_ENVIRONMENT_ID", "--env", "ANTHROPIC_SESSION_ID", "--env", "ANTHROPIC_WORK_ID"},
		// The placeholder stands in the payload from which the worker takes the token of its session.
		command: []string{"sh", "-c", `ANTHROPIC_WORK_SECRET=$(printf '{"sessions_token":"%s"}' "$ANTHROPIC_ENVIRONMENT_KEY" | base64 | tr -d '\n') exec ant beta:worker run "$@"`, "ant"},
		poll:    []string{"ant", "beta:worker", "poll", "--on-work"},
		token:   "ANTHROPIC_ENVIRONMENT_KEY",
	}, {
		name: "codex",
		flags: []string{"--allow-domain", "api.openai.com:443", "--allow-domain", "codex-cloud-environments.chatgpt.com:443",
			"--secret", "CODEX_API_KEY", "--secret-for", "CODEX_API_KEY=api.openai.com:Authorization"},
		command: []string{"codex", "exec-server", "--environment-id", place},
	}}
}

// Worker returns demesne worker.
func Worker() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "worker", Usage: []string{"[flags] [--] CMD [ARG…]", "[flags] --for claude|codex [-- ARG…]"},
			Summary: "keep commands running in sandboxes, for an agent elsewhere",
			About: `Runs CMD in several sandboxes at once, and starts it again in a new sandbox when it ends: after a second, or after longer and
longer pauses, up to a minute, while it fails within ten seconds. In the arguments, the worker's number replaces {}, or its own --each does.

All workers are one job, and worker N is JOB/N for wait, logs and cancel. INT and TERM drain them: each command gets TERM, has the time of
--grace to end, and is killed then. The exit code is 0 then.

With --for, a vendor's hosted agents work in the sandboxes, and a sandbox has a placeholder for the vendor's key:
  claude  $ANTHROPIC_ENVIRONMENT_ID and _KEY name a self-hosted environment. ant beta:worker poll runs outside of the sandboxes, and
          each session gets a sandbox of its own, in which ant beta:worker run serves it.
  codex   codex exec-server serves the environments of --each, with the key in $CODEX_API_KEY. Its --remote URL follows --.
The image or a mount must have these programs.`,
			Examples: []cmdline.Example{
				{Says: "serve at most four sessions of Claude's agents at once", Line: "demesne worker --count 4 --memory 2g --image example/ant --for claude"},
				{Says: "serve two environments of OpenAI's agents", Line: "demesne worker --each env_1 --each env_2 --image demesne/codex --for codex -- --remote https://api.openai.com/v1"},
				{Says: "keep two builders of your own running", Line: "demesne worker --count 2 --allow-domain queue.example.com --label queue=build -- build-worker --id {}"},
			},
			Operand: cmdline.Argv,
		},
		New: func(a *app.App) app.Options {
			return &workerOptions{runOptions: runOptions{Options: launch.Options{App: a}}, grace: workerGrace}
		},
	}
}

// workerOptions are the options of worker: the ones of run that suit many sandboxes at once, and its own.
type workerOptions struct {
	runOptions
	count int
	each  []string
	hands hands // of --for
	item  bool  // stdin has an item of work, which this process does
	grace time.Duration
}

func (o *workerOptions) Flags() cmdline.Flags {
	return append(forMany(o.runOptions.Flags(), "on"),
		cmdline.Flag{Group: app.GroupCommand, Long: "count", Arg: "N", Set: o.setCount, Help: "run N workers (default 1, or one for each --each)"},
		cmdline.Flag{Group: app.GroupCommand, Long: "each", Arg: "WORD", Repeat: true, Set: cmdline.List(&o.each, checkWord), Help: "run a worker for this word, which replaces {} in the arguments; repeatable"},
		cmdline.Flag{Group: app.GroupCommand, Long: "for", Arg: "VENDOR", Words: []string{"claude", "codex"}, Set: o.setFor, Help: "serve the hosted agents of a vendor: claude or codex"},
		cmdline.Flag{Group: app.GroupCommand, Long: "item", Set: cmdline.On(&o.item), Help: "with --for claude: serve one item of work, which stdin has; for ant beta:worker poll --on-work"},
		cmdline.Flag{Group: app.GroupLimits, Long: "grace", Arg: "DURATION", Set: cmdline.Duration(&o.grace), Help: "how long a command has to end after TERM (default 30s, at most 50s)"})
}

func (o *workerOptions) setCount(s string) (err error) {
	if o.count, err = strconv.Atoi(s); err != nil || o.count < 1 || o.count > 1000 {
		return errors.New("not a number from 1 to 1000")
	}
	return nil
}

// checkWord checks an item of a list.
func checkWord(s string) error {
	if strings.Contains(s, "\n") {
		return errors.New("has a line break")
	}
	return app.CheckInput(s)
}

// setFor takes the flags of a row as if the caller had given them.
func (o *workerOptions) setFor(name string) error {
	i := slices.IndexFunc(vendors(), func(h hands) bool { return h.name == name })
	if i < 0 || o.hands.name != "" {
		return errors.New("not claude or codex, or given twice")
	}
	o.hands = vendors()[i]
	_, err := o.runOptions.Flags().Parse(o.hands.flags)
	return err
}

const workerGrace = 30 * time.Second

// argv returns the command of a worker.
func (o *workerOptions) argv(args []string, word string) []string {
	args = slices.Concat(o.hands.command, args)
	for i, arg := range args {
		args[i] = strings.ReplaceAll(arg, place, word)
	}
	return args
}

func (o *workerOptions) Run(args []string) (int, error) {
	named := slices.Contains(o.hands.command, place)
	switch {
	case len(args) == 0 && o.Shell == nil && o.Image.Kind == "" && o.hands.name == "":
		return 0, text.Hinted(errors.New("no command given"), "demesne worker --help shows examples")
	case len(o.each) > 0 && o.count > 0:
		return 0, errors.New("--count: cannot be combined with --each")
	case named && len(o.each) == 0:
		return 0, fmt.Errorf("--for %s: needs an environment's id: --each ID", o.hands.name)
	case o.item && o.hands.token == "":
		return 0, errors.New("--item: needs --for claude")
	case o.grace > 50*time.Second:
		return 0, errors.New("--grace: more than 50s")
	case o.item:
		return o.serve(args)
	}
	for n := range max(o.count, 1) {
		if n >= len(o.each) {
			o.each = append(o.each, strconv.Itoa(n+1))
		}
	}
	c, err := o.newRun(o.argv(args, o.each[0]))
	if err != nil {
		return 0, err
	}
	t := jobTool{o.App}
	j, err := t.launch(&o.runOptions, func(store *jobs.Store, self string, line jobLine) (*jobs.Job, error) {
		return store.StartList([]string{self, AttendVerb}, line, jobs.List{Items: o.each, Parallel: len(o.each)})
	})
	switch {
	case err != nil:
		return 0, err
	case o.background:
		return o.Print(j.ID + "\n")
	}
	o.Say(fmt.Sprintf("worker: job %q has %d workers", j.ID, len(o.each)))
	return t.drained(c, j.ID)
}

// drained waits for the end of a job, which it cancels at a signal. A cancelled job has drained.
func (t jobTool) drained(c *command, id string) (int, error) {
	store, err := t.Jobs()
	if err != nil {
		return 0, err
	}
	j, err := store.Wait(c.Sig.Ctx, id, forever)
	switch {
	case err != nil:
		return 0, err
	case c.Sig.GaveUp() == 0 && j.Status != jobs.Cancelled:
		return t.outcome(j), nil
	}
	if _, err = store.Cancel(context.WithoutCancel(c.Sig.Ctx), id); err == nil {
		t.Say("worker: drained")
	}
	return 0, err
}

// The pauses before a command starts again, and how long one runs that has not failed at its start.
const (
	firstPause, lastPause = time.Second, time.Minute
	steady                = 10 * time.Second
)

// again calls run until ctx ends, and says in the log why it calls it again.
func again(ctx context.Context, errs io.Writer, run func() (*runner.Result, error)) (*runner.Result, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		res, err := run()
		if ctx.Err() != nil {
			return res, err
		}
		if time.Since(began) >= steady || err == nil && res.ExitCode == 0 {
			pause = firstPause
		}
		why := "ended"
		switch {
		case err != nil:
			why = text.SafeLine(err.Error())
		case res.Reason != runner.Exited || res.ExitCode != 0:
			why = fmt.Sprintf("%s with code %d", res.Reason, res.ExitCode)
		}
		fmt.Fprintf(errs, "demesne: worker: %s; starts again in %s\n", why, pause)
		select {
		case <-ctx.Done():
			return res, err
		case <-time.After(pause):
		}
	}
}

// take runs the program of the row that takes work. Each item is a run of this program: see serve.
func (o *workerOptions) take(ctx context.Context, line []string, out, errs io.Writer) (*runner.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	script, err := os.CreateTemp("", "demesne-worker-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(script.Name())
	_, err = script.WriteString("#!/bin/sh\nexec " + text.ShellWords(slices.Concat([]string{self, "worker", "--item"}, line)) + "\n")
	if err = errors.Join(err, script.Chmod(0o700), script.Close()); err != nil {
		return nil, err
	}
	runtime.LockOSThread() // whose end is the parent's, for Pdeathsig
	defer runtime.UnlockOSThread()
	argv := append(slices.Clone(o.hands.poll), script.Name())
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	hidden := o.Network.Hidden()
	toOut, toErrs := hidden.Writer(out), hidden.Writer(errs)
	defer toErrs.Close()
	defer toOut.Close()
	c.Stdout, c.Stderr, c.WaitDelay = toOut, toErrs, o.grace
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	if err = c.Start(); err != nil {
		return nil, err
	}
	defer syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // an item that it left behind
	if err = c.Wait(); c.ProcessState == nil {
		return nil, err
	}
	return &runner.Result{Reason: runner.Exited, ExitCode: c.ProcessState.ExitCode()}, nil
}

// serve runs the command for the item of work that stdin has.
func (o *workerOptions) serve(args []string) (int, error) {
	b, err := io.ReadAll(io.LimitReader(o.Stdin, maxWork))
	if err != nil {
		return 0, fmt.Errorf("read item: %w", err)
	}
	if token := tokenOf(b); token != "" {
		env := o.Env
		o.Env = func(name string) (string, bool) {
			if name == o.hands.token {
				return token, true
			}
			return env(name)
		}
	}
	o.Verb = "run"
	if _, err := o.runOptions.Flags().Parse(o.hands.item); err != nil {
		return 0, err
	}
	c, err := o.newRun(o.argv(args, "1"))
	if err != nil {
		return 0, err
	}
	return c.finish()
}

// maxWork is more than an item of work has, in bytes.
const maxWork = 1 << 20

// tokenOf returns the token of its session that an item of work has, or "": it is JSON in the item's secret, as base64 in
// either alphabet.
func tokenOf(item []byte) string {
	var work struct{ Secret string }
	var secret struct {
		Token string `json:"sessions_token"`
	}
	if json.Unmarshal(item, &work) != nil {
		return ""
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(work.Secret))
	if err != nil || json.Unmarshal(b, &secret) != nil {
		return ""
	}
	return secret.Token
}
