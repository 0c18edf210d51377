package session

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"demesne/images/oci"
	"demesne/internal/flock"
	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/session/events"
)

// RunOptions describes a command.
type RunOptions struct {
	Command runner.Command // without streams

	// Complete completes the command once the image's configuration is known; it is empty for a root that is not an image.
	// nil: Command is complete. Only Run calls it.
	Complete func(oci.Config, *runner.Command) error `json:"-"`

	// Streams carry the command's input and output. nil: Stdin is its input, and its output is collected, and copied
	// to Stdout and Stderr unless they are nil. Logs then puts it into a one-shot sandbox's output directory, as
	// stdout.log and stderr.log.
	Streams        Streams `json:"-"`
	Stdin          string
	Stdout, Stderr io.Writer `json:"-"`
	Logs           bool

	// Next returns a further command for the same sandbox, which ends with the last one. It is called with the result of
	// each command that was not killed, and may wait. nil, or no command: done is the last one. Only Run calls it, for
	// a sandbox without a key and with collected output, which goes on. Its error becomes the run's.
	Next func(ctx context.Context, done *RunResult) (*runner.Command, error) `json:"-"`

	// Steps is a list of commands in place of one: see RunSteps.
	Steps steps

	// Shown is how many bytes of stdout a frontend shows. If a collected stream is longer, the result has the head too, and a
	// file has the whole: stdout.log of Logs, else one below the sandbox's id in the output root. It is at most
	// runner.OutputKept; 0: neither.
	Shown int

	Queue     bool // wait for the earlier calls with Queue for the same sandbox, and take turns with them
	Manifest  bool // write the manifest of a one-shot sandbox's output directory
	KeepEmpty bool // keep a new output directory that nothing was written to

	hidden *redact.Values // blanked in collected output
}

// Streams carry the input and output of one command.
type Streams interface {
	// Open makes the command's ends of its streams, or asks for a terminal.
	Open(*runner.Command) error
	// Abandon releases what Open made: the command was not started.
	Abandon()
	// Carry copies until the command has ended, and returns its result, which may come with an error of the copying.
	// Without a result the frontend left the command running. kill ends the command for certain: it removes a one-shot
	// sandbox. If ctx ends, the frontend decides what becomes of the command.
	Carry(ctx context.Context, p Process, kill func()) (*runner.Result, error)
}

// RunResult is the result of a command. The result of a one-shot sandbox is final: nothing writes to its output
// directory any more.
type RunResult struct {
	*runner.Result
	Job            string // name of OutputDir, or of the run of a child
	OutputDir      string // the output directory, by the path that the caller knows
	Stdout, Stderr Tail   // of collected output
	Manifest       string // path of a file with the SHA-256 of each output; empty: no manifest
	ManifestErr    error  `json:"-"` // why a manifest that was asked for is missing

	Steps  []*RunResult `json:",omitempty"` // see [Joined]
	Step   int          // place in a list of commands
	Failed bool         // of such a command: its failure is one that the list does not allow
}

// Run makes a one-shot sandbox, runs a command in it, and removes the sandbox. With Spec.Key it uses the persistent
// sandbox of that key, and keeps it. An error may come with a result: the command then ended, and its output is
// incomplete. Without either the frontend left the command running.
func (s *Service) Run(ctx context.Context, c CreateOptions, r RunOptions, cb Callbacks) (*RunResult, error) {
	if c.Spec.Key != "" {
		return s.runKeyed(ctx, c, r, cb)
	}
	c.Spec.Lifetime = runner.OneShot
	if r.Next != nil {
		c.Spec.Lifetime = runner.Attached
	}
	st, err := s.prepare(ctx, c, cb)
	if err != nil {
		return nil, err
	}
	defer st.close()
	if err := st.complete(&r); err != nil {
		st.undo()
		return nil, err
	}
	r.hidden = valuesOf(secretsOf(&st.spec))
	if err := r.collect(s.outputs, r.Next == nil); err != nil {
		st.undo()
		return nil, err
	}
	begin := st.createAndStart(&s.conn, cb)
	if c.Egress.Ask > 0 && cb.Ask != nil { // a question may come before the answer to the command's start
		sb, err := st.create(ctx, &s.conn)
		if err != nil {
			st.undo()
			return nil, err
		}
		cb.made(sb)
		defer s.asks.listen(sb.ID, cb.Ask)()
		begin = startOrRemove(sb, &s.conn)
	}
	res, started, err := s.execute(ctx, begin, r, cb, true)
	if !started {
		st.undo()
		return nil, err
	}
	done, err := st.finish(r, res, err)
	if done != nil && done.Manifest != "" {
		s.watch.report(ctx, events.ArtifactSigned, done.Sandbox, "", "output", filepath.Base(st.out.path))
	}
	return done, err
}

// complete completes the command by the image's configuration.
func (st *pending) complete(r *RunOptions) error {
	if r.Complete == nil {
		return nil
	}
	var c oci.Config
	if st.root.image != nil {
		c = st.root.image.Config
	}
	return r.Complete(c, &r.Command)
}

// finish makes the result of a one-shot sandbox that has ended.
func (st *pending) finish(r RunOptions, res *runner.Result, err error) (*RunResult, error) {
	done := r.result(res)
	own, collected := r.Streams.(*collector)
	if res != nil {
		res.EgressLog = tidyLog(res.EgressLog)
	}
	gone := res != nil && !r.KeepEmpty && (!collected || own.silent() || !r.Logs) && st.out.removeEmpty()
	if collected && gone {
		own.drop()
	} else if collected {
		err = errors.Join(err, own.place(st.out))
		if err != nil {
			return nil, err
		}
		if done != nil && own.out.long() && r.Logs {
			done.Stdout.File = filepath.Join(st.out.path, "stdout.log")
		}
	}
	if done != nil && r.Manifest && !gone {
		_, done.Manifest, done.ManifestErr = WriteManifest(st.out.path)
	}
	return done, err
}

// result returns the result of a command. res is nil if the command did not end.
func (r *RunOptions) result(res *runner.Result) *RunResult {
	if res == nil {
		return nil
	}
	done := &RunResult{Result: res, Job: filepath.Base(res.Out), OutputDir: res.Out}
	if c, ok := r.Streams.(*collector); ok {
		done.Stdout, done.Stderr = c.out.last(), c.errs.last()
	}
	return done
}

// runKeyed runs a command in the sandbox of a key. Its output is not placed in the output directory, because other
// calls may be using that directory.
func (s *Service) runKeyed(ctx context.Context, c CreateOptions, r RunOptions, cb Callbacks) (*RunResult, error) {
	c.Spec.Lifetime = runner.Persistent
	st, err := s.prepare(ctx, c, cb)
	if err != nil {
		return nil, err
	}
	err = st.complete(&r)
	if err != nil {
		st.undo()
		st.close()
		return nil, err
	}
	sb, err := s.adopt(ctx, st, cb)
	if err != nil {
		return nil, err
	}
	return s.within(ctx, sb, r, cb)
}

// Exec runs a command in a persistent sandbox, and renews its TTL. It starts a sandbox that has lost its processes.
// Errors and results are as in Run.
func (s *Service) Exec(ctx context.Context, idOrName string, r RunOptions, cb Callbacks) (*RunResult, error) {
	if _, err := s.egress.secrets(); err != nil {
		return nil, err
	}
	if sb := s.conn.known(idOrName); sb != nil {
		done, err := s.within(ctx, sb, r, cb)
		if !lookAgain(err) {
			return done, err
		}
		s.conn.unknow(idOrName)
	}
	began := time.Now()
	live, isNew, err := s.conn.get(ctx, false)
	if err != nil {
		return nil, err
	}
	cb.since("connect", began)
	if isNew && !r.Queue {
		return s.start(ctx, func(ctx context.Context, cmd runner.Command) (*Sandbox, Process, error) {
			sb, p, err := live.Exec(ctx, idOrName, cmd)
			if err == nil {
				s.conn.know(live, sb)
				cb.made(sb)
			}
			return sb, p, err
		}, r, cb)
	}
	sb, err := s.Open(ctx, idOrName, cb)
	if err != nil {
		return nil, err
	}
	return s.within(ctx, sb, r, cb)
}

// lookAgain reports whether err says that the runner does not know the sandbox, and therefore has done nothing with it.
func lookAgain(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeNoSuchSandbox
}

// within runs a command in a persistent sandbox. With r.Queue it first waits for its turn.
func (s *Service) within(ctx context.Context, sb *Sandbox, r RunOptions, cb Callbacks) (*RunResult, error) {
	if r.Queue {
		turn, err := joinQueue(s.opts.Queues, sb.ID)
		if err != nil {
			return nil, err
		}
		defer turn.Leave()
		s.watch.queued(ctx, sb.ID, turn)
		if err := turn.Wait(ctx); err != nil {
			return nil, err
		}
	}
	r.hidden = s.watch.hidden.values(sb.ID)
	return s.start(ctx, startIn(sb), r, cb)
}

// joinQueue joins the queue of a sandbox; dir is Options.Queues.
func joinQueue(dir, id string) (_ *flock.Turn, err error) {
	if dir == "" {
		if dir, err = flock.QueueDir(); err != nil {
			return nil, err
		}
	}
	return flock.JoinQueue(dir, id, rand.Text())
}

// start runs a command that begin starts in a persistent sandbox.
func (s *Service) start(ctx context.Context, begin begin, r RunOptions, cb Callbacks) (_ *RunResult, err error) {
	if r.Command.Secrets, err = s.egress.secrets(); err != nil {
		return nil, err
	}
	if r.hidden == nil {
		r.hidden = valuesOf(r.Command.Secrets)
	}
	if err := r.collect(s.outputs, false); err != nil {
		return nil, err
	}
	var sb string
	res, _, err := s.execute(ctx, func(ctx context.Context, cmd runner.Command) (*Sandbox, Process, error) {
		b, p, err := begin(ctx, cmd)
		if b != nil {
			sb = b.ID
		}
		return b, p, err
	}, r, cb, false)
	done := r.result(res)
	if own, collected := r.Streams.(*collector); collected {
		if file := s.outputs.keepLong(sb, own.out); done != nil {
			done.Stdout.File = file
		}
	}
	return done, err
}

// begin starts a command, and may first make its sandbox. On an error it leaves nothing behind.
type begin func(context.Context, runner.Command) (*Sandbox, Process, error)

// createAndStart makes the sandbox of st and starts a command in it, in one call. It ignores cancellation as connection.create.
func (st *pending) createAndStart(conn *connection, cb Callbacks) begin {
	return func(ctx context.Context, cmd runner.Command) (sb *Sandbox, p Process, err error) {
		err = st.root.make(ctx, st.spec, conn, func(ctx context.Context, spec runner.Spec) error {
			return conn.with(ctx, func(e Engine) (err error) {
				sb, p, err = e.Run(context.WithoutCancel(ctx), spec, cmd)
				return err
			})
		})
		if err == nil {
			cb.made(sb)
		}
		return sb, p, err
	}
}

// startIn starts a command in an existing sandbox.
func startIn(sb *Sandbox) begin {
	return func(ctx context.Context, cmd runner.Command) (*Sandbox, Process, error) {
		p, err := sb.Exec(ctx, cmd)
		return sb, p, err
	}
}

// startOrRemove is startIn, and removes the sandbox if the command cannot be started.
func startOrRemove(sb *Sandbox, conn *connection) begin {
	return func(ctx context.Context, cmd runner.Command) (*Sandbox, Process, error) {
		p, err := sb.Exec(ctx, cmd)
		if err != nil {
			conn.remove(sb.ID)
		}
		return sb, p, err
	}
}

// execute runs the command that begin starts. If alone, the sandbox is only for this command.
func (s *Service) execute(ctx context.Context, begin begin, r RunOptions, cb Callbacks, alone bool) (res *runner.Result, started bool, err error) {
	cmd := r.Command
	if err := s.opts.denied(&cmd); err != nil {
		return nil, false, err
	}
	cmd.Path = s.CallerPath()
	if err := r.Streams.Open(&cmd); err != nil {
		return nil, false, fmt.Errorf("make pipes: %w", err)
	}
	sb, p, err := begin(ctx, cmd)
	if err != nil {
		r.Streams.Abandon()
		return nil, false, err
	}
	defer s.asks.listen(sb.ID, cb.Ask)()
	if c, ok := r.Streams.(*collector); ok && cb.Began != nil {
		cb.Began(c.out.glimpse)
	}
	kill := func() {
		if alone {
			s.Discard(sb.ID)
		} else {
			p.Signal(syscall.SIGKILL)
		}
	}
	res, err = r.Streams.Carry(ctx, p, kill)
	if alone && r.Next != nil {
		res, err = r.further(ctx, s, sb, kill, res, err)
	}
	return res, true, err
}

// CallerPath returns the absolute directories of this process's PATH, for commands that a frontend starts itself.
func (s *Service) CallerPath() []string {
	return slices.DeleteFunc(filepath.SplitList(s.opts.Getenv("PATH")), func(dir string) bool { return !filepath.IsAbs(dir) })
}

// further runs the commands of r.Next in the sandbox, after one that ended with res and err. Then it removes the sandbox.
func (r RunOptions) further(ctx context.Context, s *Service, sb *Sandbox, kill func(), res *runner.Result, err error) (*runner.Result, error) {
	defer s.Discard(sb.ID)
	for res != nil && err == nil {
		cmd, stop := r.Next(ctx, r.result(res))
		if cmd == nil || stop != nil {
			return res, stop
		}
		if err := s.opts.denied(cmd); err != nil {
			return res, err
		}
		cmd.Path = s.CallerPath()
		if err := r.Streams.Open(cmd); err != nil {
			return res, fmt.Errorf("make pipes: %w", err)
		}
		p, err := sb.Exec(ctx, *cmd)
		if err != nil {
			r.Streams.Abandon()
			return res, err
		}
		if res, err = r.Streams.Carry(ctx, p, kill); err != nil {
			return res, err
		}
	}
	return res, err
}
