package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/mounts"
	"demesne/cli/stream"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session"
)

// killGrace is how long a command may take to end after SIGKILL before the whole sandbox is stopped.
const killGrace = time.Second

// Execution is one command of run, exec or attach, from its checks to its result. It is the session.Streams of its
// command.
type Execution struct {
	Options *Options
	Cmd     runner.Command
	Began   time.Time
	Stages  Stages
	Sig     *stream.Signals
	Term    *stream.Terminal
	Kept    *stream.Capture // the output, if --json takes stdout
	Doc     *document
	stdio   *stream.Stdio // nil with a terminal
	Placed  *mounts.Placed
	Missing func() error         // explains that the sandbox lacks the program; nil, or a nil error: see explain
	After   func(*runner.Result) // hints at what the result means; may be nil
	Started bool
	Over    chan struct{} // closed when result is set
	left    bool          // the caller detached and the command runs on: there is no result
	Result  *runner.Result

	Manifest string // path, if --manifest wrote one
	Problem  error  // why the command could not run in the sandbox that was made
}

// NewExecution returns an execution after every check that needs no sandbox.
func (o *Options) NewExecution(argv []string) (*Execution, error) {
	j := &Execution{Options: o, Began: time.Now(), Over: make(chan struct{})}
	env, err := o.Environment(o.Env)
	if err != nil {
		return nil, err
	}
	j.Cmd = runner.Command{Argv: argv, Env: env, Dir: o.Workdir, User: o.User, Timeout: o.timeout}
	if j.Doc, err = openDocument(&o.Console, &o.reportOptions); err != nil {
		return nil, err
	}
	if o.JSON && o.JSONFile == "" {
		j.Kept = &stream.Capture{}
	}
	j.Term = &stream.Terminal{Fd: -1}
	if o.TTY {
		j.Term = o.OpenTerminal()
	}
	j.Sig = stream.WatchSignals(o.Quit, j.Term)
	return j, nil
}

// RunOptions returns how a session runs the command.
func (j *Execution) RunOptions() session.RunOptions {
	return session.RunOptions{Command: j.Cmd, Streams: j}
}

// Open makes the pipes, or asks for a terminal.
func (j *Execution) Open(cmd *runner.Command) (err error) {
	<-j.Sig.Watched
	j.Kept.Hide(j.Options.Network.Hidden())
	cmd.Account = j.Doc != nil
	if j.Options.TTY {
		size := j.Term.Size()
		cmd.TTY = &size
		return nil
	}
	if j.stdio, err = j.Options.OpenStdio(cmd, j.Options.Interactive, j.Kept, j.Stages.firstByte); err == nil {
		j.stdio.Share(j.Options.Floor, j.Over)
	}
	return err
}

// Abandon closes the pipes of a command that was not started.
func (j *Execution) Abandon() {
	if j.stdio != nil {
		j.stdio.Close()
	}
}

// Carry copies until the command ends, or until the caller detaches from its terminal. Signals go to the command; kill
// is for one that survives SIGKILL.
func (j *Execution) Carry(_ context.Context, p session.Process, kill func()) (*runner.Result, error) {
	j.Started = true
	j.Sig.Attach(p, func() {
		select {
		case <-j.Over:
		case <-time.After(killGrace):
			kill()
		}
	})
	j.Stages.add(p.Stages()...)
	j.Stages.executed()
	if j.Options.TTY {
		err := j.OverTerminal(p, nil)
		return j.Result, err
	}
	j.stdio.Start()
	// Waiting does not depend on copying: a caller that does not read cannot delay the sandbox's teardown.
	if err := j.wait(p); err != nil {
		return nil, err
	}
	return j.Result, j.stdio.Drain(j.patience())
}

// Ended takes the result of a session's call.
func (j *Execution) Ended(done *session.RunResult, err error) error {
	if done != nil {
		j.Manifest = done.Manifest
		err = errors.Join(err, done.ManifestErr)
	}
	if j.Problem != nil {
		return j.Problem
	}
	return j.explain(err)
}

// OverTerminal continues a started command that has a terminal; recent is its output so far.
func (j *Execution) OverTerminal(p session.Process, recent []byte) error {
	defer j.Term.Restore()
	if err := j.Term.MakeRaw(); err != nil {
		return err
	}
	if err := stream.WriteAll(stream.FD(j.Options.Stdout), recent); err != nil {
		return err
	}
	if stays := j.Options.Verb != "run" || j.Options.Key != ""; stays && j.Term.Fd >= 0 && j.Doc == nil {
		j.Term.Keys = stream.NewDetachKeys()
	}
	j.Term.Answers, j.Term.Floor, j.Term.Over = j.Options.Answers, j.Options.Floor, j.Over
	j.Options.Answers.Attach(func() { redraw(p, j.Term.Size()) })
	out := j.Term.Connect(&j.Options.Files, p.Terminal(), j.Options.Interactive, j.Kept, j.Stages.firstByte)
	if err := j.waitOrLeave(p); err != nil || j.left {
		return err
	}
	out.DrainTerminal()
	return out.CopyError()
}

// redraw makes a program draw its screen again: most do so when the size changes.
func redraw(p session.Process, size runner.Winsize) {
	p.Resize(runner.Winsize{Rows: max(1, size.Rows-1), Cols: size.Cols})
	time.Sleep(50 * time.Millisecond)
	p.Resize(size)
}

// waitOrLeave waits until the command ends or the caller types the detach keys.
func (j *Execution) waitOrLeave(p session.Process) error {
	if j.Term.Keys == nil {
		return j.wait(p)
	}
	ended := make(chan error, 1)
	go func() { ended <- j.wait(p) }()
	select {
	case err := <-ended:
		return err
	case <-j.Term.Keys.Left:
	}
	select { // what was typed before the detach keys is for the command, which may read nothing
	case <-j.Term.Typed.Done:
	case <-time.After(stream.Patience):
	}
	j.Term.Restore()
	j.left = true
	return nil
}

func (j *Execution) wait(p session.Process) (err error) {
	j.Result, err = p.Wait(context.Background())
	close(j.Over)
	j.Sig.Release()
	j.Stages.ended()
	return err
}

// patience returns how long output may make no progress before the rest is discarded. It returns 0, no limit,
// if the command exited by itself: then its reader is merely slow.
func (j *Execution) patience() time.Duration {
	if j.Result.Reason == runner.Exited {
		return 0
	}
	return stream.Patience
}

// Finish reports the outcome and returns the exit code. It runs once no more of the command's output can
// arrive.
func (j *Execution) Finish(err error) (int, error) {
	j.Term.Restore()
	if j.left {
		fmt.Fprintln(j.Options.Stderr, "\r\ndemesne: detached, the command runs on: demesne attach returns to it")
		return 0, nil
	}
	if code := j.Sig.GaveUp(); code != 0 && !j.Started {
		return code, nil
	}
	trace := j.Stages.All(j.Began)
	if werr := j.Doc.write(j.Result, j.Manifest, trace, j.Kept, err); err == nil {
		err = werr
	}
	if j.Options.Trace {
		PrintTrace(j.Options.Stderr, trace)
	}
	if j.Result == nil {
		return 0, err
	}
	if line := app.ReasonLine(j.Options.Verb, j.Result); line != "" {
		j.Options.Say(line)
	}
	TellBlocked(&j.Options.Console, j.Result, j.Options.Verb != "run" || j.Options.Key != "")
	j.tellLearned()
	j.tellOutput()
	if j.After != nil {
		j.After(j.Result)
	}
	j.Placed.Tell()
	if err != nil {
		j.Options.Report(j.Options.Verb, err)
		if j.Result.ExitCode == 0 {
			return app.ExitFailed, nil
		}
	}
	return j.Result.ExitCode, nil
}

// tellLearned hints at the command that turns the log of --learn into a policy.
func (j *Execution) tellLearned() {
	if j.Options.Network.Learn && j.Result.EgressLog != "" && stream.IsTerminal(j.Options.Stderr) {
		fmt.Fprintf(j.Options.Stderr, "hint: to allow only what this run used: demesne egress suggest %s > policy.toml\n", text.SafeLine(j.Result.EgressLog))
	}
}

// tellOutput prints the path of an output directory that the user did not name, if it is not empty and stderr is a
// terminal.
func (j *Execution) tellOutput() {
	if j.Options.Verb != "run" || j.Options.out != "" || !stream.IsTerminal(j.Options.Stderr) {
		return
	}
	dir, err := os.Open(j.Result.Out)
	if err != nil {
		return
	}
	defer dir.Close()
	if left, _ := dir.Readdirnames(1); len(left) > 0 { // read one name only: there may be millions
		fmt.Fprintf(j.Options.Stderr, "hint: output is in %s\n", text.SafeLine(j.Result.Out))
	}
}

// Interrupt ends a command as two INTs would: SIGTERM, and SIGKILL after grace, or else killGrace.
func (j *Execution) Interrupt(grace time.Duration) {
	j.Sig.Take(unix.SIGTERM)
	time.AfterFunc(cmp.Or(grace, killGrace), func() { j.Sig.Insist(unix.SIGTERM) })
}

// explain adds a hint to the error of a command that the sandbox does not have or cannot execute.
func (j *Execution) explain(err error) error {
	var e *ipc.Error
	if errors.As(err, &e) && e.Code == ipc.CodeCommandNotFound && j.Missing != nil {
		if why := j.Missing(); why != nil {
			return why
		}
	}
	switch {
	case e == nil:
	case e.Code == ipc.CodeNotExecutable && j.Options.platform != "":
		return text.Hinted(err, "programs for %s need an emulator on this machine: sudo apt install qemu-user-static", text.SafeLine(j.Options.platform))
	case e.Code == ipc.CodeCommandNotFound && j.Options.Image.Kind == "" && len(j.Cmd.Argv) > 0:
		if file := j.OnMachine(j.Cmd.Argv[0]); file != "" {
			return j.Shows(err, file)
		}
	}
	return err
}

// Shows adds a hint to err: how a sandbox shows a program of this machine.
func (j *Execution) Shows(err error, file string) error {
	verb := "demesne create"
	if j.Options.Verb == "run" {
		verb = "demesne run"
	}
	return text.Hinted(err, "the sandbox does not have %s, which is on this machine: %s --mount %s:ro shows that directory",
		text.SafeLine(file), verb, text.SafeLine(filepath.Dir(file)))
}

// OnMachine returns the path of a program in the caller's PATH, or "".
func (j *Execution) OnMachine(name string) string {
	if strings.Contains(name, "/") {
		return ""
	}
	for _, dir := range filepath.SplitList(j.Options.Getenv("PATH")) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}
