package tree

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"demesne/agents"
	"demesne/images/recipes"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/session"
)

// attempts are the executions of an agent's program in its sandbox: one, and one more after each rate limit. Their
// output is one transcript.
type attempts struct {
	node    *node
	task    agents.Task
	launch  *agents.Launch
	due     time.Time // when the credential is to be renewed; zero: never
	renewal *agents.Renewal
	renewed bool // because the server refused it

	transcript, stderr *record
	events             *agents.Transcript
	out                io.Writer

	count  int
	waited time.Duration
	gaveUp string // why a rate limit was the end
}

// Files of an agent run.
const (
	fileTranscript = "transcript.jsonl"
	fileStderr     = "stderr.log"
	fileAnswer     = "answer.txt" // in the sidecar directory only: the final answer, where no sandbox can change it
)

func (a *attempts) close() {
	a.transcript.f.Close()
	a.stderr.f.Close()
}

func (a *attempts) command(argv []string) runner.Command {
	return runner.Command{Argv: argv, Env: a.launch.Env, Dir: a.launch.Dir, User: a.launch.User, Account: true}
}

func (a *attempts) options() session.RunOptions {
	return session.RunOptions{Command: a.command(a.launch.Argv), Stdout: a.out, Stderr: a.stderr, Next: a.next, KeepEmpty: true}
}

// callbacks returns w with a step after the sandbox is made: it starts what works beside the program.
func (a *attempts) callbacks(w session.Callbacks) session.Callbacks {
	note := func(line string) { a.node.note("%s", line) }
	return session.Callbacks{Note: note, Progress: sparsely(note), Began: w.Began, Made: func(sb *session.Sandbox) {
		a.renewal.Sandbox = sb.ID
		go a.renewal.Run(a.node.ctx, a.due)
		a.node.appear(sb)
	}}
}

// noteEvery is how often the progress of an image is shown.
const noteEvery = 2 * time.Second

// sparsely returns a function that passes on a line if the last one is not recent, or if it announces that an image of a
// recipe is built, which takes minutes. It is safe for concurrent use.
func sparsely(tell func(string)) func(string) {
	var mu sync.Mutex
	last := time.Now()
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= noteEvery || strings.Contains(line, "building "+recipes.Namespace) {
			last = time.Now()
			tell(line)
		}
	}
}

// next returns the command that resumes the session: after a rate limit, once that is over, and once after the server
// refused the credential, which may have expired.
func (a *attempts) next(ctx context.Context, done *session.RunResult) (*runner.Command, error) {
	a.ended(done.Result)
	if reset, limited := a.limit(done); limited {
		if more, err := a.pause(ctx, reset); !more || err != nil {
			return nil, err
		}
		return a.resume()
	}
	if a.node.asked.refused() && a.unfinished() && !a.renewed {
		a.renewed = true
		if _, err := a.renewal.Renew(ctx, true); err != nil {
			return nil, err
		}
		return a.resume()
	}
	return nil, nil
}

// ended tells the transcript that the program has ended. r is nil if it is not known how.
func (a *attempts) ended(r *runner.Result) {
	a.events.Close()
	if r != nil && r.Reason == runner.Exited {
		a.events.Exited(r.ExitCode)
	}
}

// pause waits for the end of a rate limit. more is false if a bound forbids to.
func (a *attempts) pause(ctx context.Context, reset time.Time) (more bool, err error) {
	now := time.Now()
	d, why, ok := backoff(a.node.agent.Provider.Retry, a.count, a.waited, now, reset)
	if !ok {
		a.gaveUp = why
		return false, nil
	}
	a.node.show(Notice{Event: agents.Event{Kind: NoticeWaiting, Text: "a rate limit"}, Until: now.Add(d)})
	sleep(d, ctx.Done())
	a.waited, a.count = a.waited+d, a.count+1
	return true, context.Cause(ctx)
}

// resume returns the command that continues the session in the same sandbox, or starts a new session if no session exists yet.
func (a *attempts) resume() (*runner.Command, error) {
	argv := a.launch.Argv
	if id := a.events.Session(); id != "" {
		var err error
		if argv, err = a.node.agent.Resume(a.task, id); err != nil {
			return nil, err
		}
	}
	a.events.Resume()
	c := a.command(argv)
	return &c, nil
}

// limit reports whether the program ended because of a rate limit: by its own words or, if it did not complete its work,
// because its last request met one. reset is zero if neither named a time.
func (a *attempts) limit(done *session.RunResult) (reset time.Time, limited bool) {
	if done.Reason != runner.Exited {
		return reset, false
	}
	a.node.readUsage()
	reset, limited = a.node.asked.meter.Limited()
	if said, ok := a.events.Limited(); ok {
		if !said.IsZero() {
			reset = said
		}
		return reset, true
	}
	return reset, limited && a.unfinished()
}

// unfinished reports whether the program ended without having done its work.
func (a *attempts) unfinished() bool { return !a.events.Ended() || a.events.Fault() != "" }

// failure returns why an agent that ended by itself did not do its work, or nil.
func (a *attempts) failure(res *runner.Result, stderr string) error {
	why := cmp.Or(a.events.Fault(), lastLine(stderr), "its stderr is empty")
	fault := a.node.asked.fault()
	switch {
	case a.gaveUp != "":
		return fmt.Errorf("rate limit: gave up %s: %s", a.gaveUp, why)
	case res.Reason != runner.Exited: // its Detail says why
		if fault != "" {
			res.Detail += "; " + fault
		}
		return nil
	case fault != "" && a.unfinished():
		return fmt.Errorf("%s: %s", fault, why)
	case !a.events.Ended():
		return fmt.Errorf("the program ended without a result (exit code %d): %s", res.ExitCode, why)
	}
	return nil
}

// lastLine returns the last line of text that is not empty, made fit for a message.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return text.SafeLine(s[strings.LastIndexByte(s, '\n')+1:])
}
