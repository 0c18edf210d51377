package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// killGrace is how long a command may take to end after SIGKILL before the whole sandbox is stopped.
const killGrace = time.Second

// execution is one command of run, exec or attach, from its checks to its result. It is the session.Streams of its
// command.
type execution struct {
	o       *options
	cmd     runner.Command
	began   time.Time
	stages  stages
	sig     *stream.Signals
	term    *stream.Terminal
	kept    *stream.Capture // the output, if --json takes stdout
	doc     *document
	stdio   *stream.Stdio // nil with a terminal
	placed  *placed
	missing func(error) error    // explains that the sandbox lacks the program; nil: see explain
	after   func(*runner.Result) // hints at what the result means; may be nil
	started bool
	over    chan struct{} // closed when result is set
	left    bool          // the caller detached and the command runs on: there is no result
	result  *runner.Result

	manifest string // path, if --manifest wrote one
	problem  error  // why the command could not run in the sandbox that was made
}

// newExecution returns an execution after every check that needs no sandbox.
func (o *options) newExecution(argv []string) (*execution, error) {
	j := &execution{o: o, began: time.Now(), over: make(chan struct{})}
	env, err := o.environment(o.Env)
	if err != nil {
		return nil, err
	}
	j.cmd = runner.Command{Argv: argv, Env: env, Dir: o.workdir, User: o.user, Timeout: o.timeout}
	if j.doc, err = openDocument(&o.Console, &o.reportOptions); err != nil {
		return nil, err
	}
	if o.json && o.jsonFile == "" {
		j.kept = &stream.Capture{}
	}
	j.term = &stream.Terminal{Fd: -1}
	if o.tty {
		j.term = o.OpenTerminal()
	}
	j.sig = stream.WatchSignals(o.Quit, j.term)
	return j, nil
}

// runOptions returns how a session runs the command.
func (j *execution) runOptions() session.RunOptions {
	return session.RunOptions{Command: j.cmd, Streams: j}
}

// Open makes the pipes, or asks for a terminal.
func (j *execution) Open(cmd *runner.Command) (err error) {
	<-j.sig.Watched
	j.kept.Hide(j.o.network.hidden())
	cmd.Account = j.doc != nil
	if j.o.tty {
		size := j.term.Size()
		cmd.TTY = &size
		return nil
	}
	if j.stdio, err = j.o.OpenStdio(cmd, j.o.interactive, j.kept, j.stages.firstByte); err == nil {
		j.stdio.Share(j.o.Floor, j.over)
	}
	return err
}

// Abandon closes the pipes of a command that was not started.
func (j *execution) Abandon() {
	if j.stdio != nil {
		j.stdio.Close()
	}
}

// Carry copies until the command ends, or until the caller detaches from its terminal. Signals go to the command; kill
// is for one that survives SIGKILL.
func (j *execution) Carry(_ context.Context, p session.Process, kill func()) (*runner.Result, error) {
	j.started = true
	j.sig.Attach(p, func() {
		select {
		case <-j.over:
		case <-time.After(killGrace):
			kill()
		}
	})
	j.stages.add(p.Stages()...)
	j.stages.executed()
	if j.o.tty {
		err := j.overTerminal(p, nil)
		return j.result, err
	}
	j.stdio.Start()
	// Waiting does not depend on copying: a caller that does not read cannot delay the sandbox's teardown.
	if err := j.wait(p); err != nil {
		return nil, err
	}
	return j.result, j.stdio.Drain(j.patience())
}

// ended takes the result of a session's call.
func (j *execution) ended(done *session.RunResult, err error) error {
	if done != nil {
		j.manifest = done.Manifest
		err = errors.Join(err, done.ManifestErr)
	}
	if j.problem != nil {
		return j.problem
	}
	return j.explain(err)
}

// overTerminal continues a started command that has a terminal; recent is its output so far.
func (j *execution) overTerminal(p session.Process, recent []byte) error {
	defer j.term.Restore()
	if err := j.term.MakeRaw(); err != nil {
		return err
	}
	if err := stream.WriteAll(stream.FD(j.o.Stdout), recent); err != nil {
		return err
	}
	if stays := j.o.Verb != "run" || j.o.key != ""; stays && j.term.Fd >= 0 && j.doc == nil {
		j.term.Keys = stream.NewDetachKeys()
	}
	j.term.Answers, j.term.Floor, j.term.Over = j.o.Answers, j.o.Floor, j.over
	j.o.Answers.Attach(func() { redraw(p, j.term.Size()) })
	out := j.term.Connect(&j.o.Files, p.Terminal(), j.o.interactive, j.kept, j.stages.firstByte)
	if err := j.waitOrLeave(p); err != nil || j.left {
		return err
	}
	stream.DrainTerminal(out)
	return out.CopyError()
}

// redraw makes a program draw its screen again: most do so when the size changes.
func redraw(p session.Process, size runner.Winsize) {
	p.Resize(runner.Winsize{Rows: max(1, size.Rows-1), Cols: size.Cols})
	time.Sleep(50 * time.Millisecond)
	p.Resize(size)
}

// waitOrLeave waits until the command ends or the caller types the detach keys.
func (j *execution) waitOrLeave(p session.Process) error {
	if j.term.Keys == nil {
		return j.wait(p)
	}
	ended := make(chan error, 1)
	go func() { ended <- j.wait(p) }()
	select {
	case err := <-ended:
		return err
	case <-j.term.Keys.Left:
	}
	select { // what was typed before the detach keys is for the command, which may read nothing
	case <-j.term.Typed.Done:
	case <-time.After(stream.Patience):
	}
	j.term.Restore()
	j.left = true
	return nil
}

func (j *execution) wait(p session.Process) (err error) {
	j.result, err = p.Wait(context.Background())
	close(j.over)
	j.sig.Release()
	j.stages.ended()
	return err
}

// patience returns how long output may make no progress before the rest is discarded. It returns 0, no limit,
// if the command exited by itself: then its reader is merely slow.
func (j *execution) patience() time.Duration {
	if j.result.Reason == runner.Exited {
		return 0
	}
	return stream.Patience
}

// finish reports the outcome and returns the exit code. It runs once no more of the command's output can
// arrive.
func (j *execution) finish(err error) (int, error) {
	j.term.Restore()
	if j.left {
		fmt.Fprintln(j.o.Stderr, "\r\ndemesne: detached, the command runs on: demesne attach returns to it")
		return 0, nil
	}
	if code := j.sig.GaveUp(); code != 0 && !j.started {
		return code, nil
	}
	trace := j.stages.all(j.began)
	if werr := j.doc.write(j.result, j.manifest, trace, j.kept, err); err == nil {
		err = werr
	}
	if j.o.trace {
		printTrace(j.o.Stderr, trace)
	}
	if j.result == nil {
		return 0, err
	}
	if line := app.ReasonLine(j.o.Verb, j.result); line != "" {
		j.o.Say(line)
	}
	tellBlocked(&j.o.Console, j.result, j.o.Verb != "run" || j.o.key != "")
	j.tellLearned()
	j.tellOutput()
	if j.after != nil {
		j.after(j.result)
	}
	j.placed.tell()
	if err != nil {
		j.o.Report(j.o.Verb, err)
		if j.result.ExitCode == 0 {
			return app.ExitFailed, nil
		}
	}
	return j.result.ExitCode, nil
}

// tellLearned hints at the command that turns the log of --learn into a policy.
func (j *execution) tellLearned() {
	if j.o.network.learn && j.result.EgressLog != "" && stream.IsTerminal(j.o.Stderr) {
		fmt.Fprintf(j.o.Stderr, "hint: to allow only what this run used: demesne egress suggest %s > policy.toml\n", text.SafeLine(j.result.EgressLog))
	}
}

// tellOutput prints the path of an output directory that the user did not name, if it is not empty and stderr is a
// terminal.
func (j *execution) tellOutput() {
	if j.o.Verb != "run" || j.o.out != "" || !stream.IsTerminal(j.o.Stderr) {
		return
	}
	dir, err := os.Open(j.result.Out)
	if err != nil {
		return
	}
	defer dir.Close()
	if left, _ := dir.Readdirnames(1); len(left) > 0 { // read one name only: there may be millions
		fmt.Fprintf(j.o.Stderr, "hint: output is in %s\n", text.SafeLine(j.result.Out))
	}
}

// abandon ends a command as two INTs would: SIGTERM, and SIGKILL after killGrace.
func (j *execution) abandon() {
	j.sig.Take(unix.SIGTERM)
	time.AfterFunc(killGrace, func() { j.sig.Take(unix.SIGTERM) })
}
