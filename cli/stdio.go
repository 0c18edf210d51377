package cli

import (
	"os"
	"time"

	"demesne/runner"
)

// patience is how long a caller that reads nothing can delay the exit, once something other than the command
// itself has ended the command.
const patience = 2 * time.Second

// files are the caller's standard streams.
type files struct{ stdin, stdout, stderr *os.File }

// stdio holds a command's streams: its ends of the pipes, and the pumps at the other ends.
type stdio struct {
	theirs   []*os.File // the command's ends; closed here as soon as it has them
	in       *pump
	out, err *pump // err is nil if stderr shares stdout's pipe
	first    func()
}

// openStdio creates the pipes that cmd needs and puts its ends into cmd. A non-nil kept receives the output in
// place of the caller.
func (c *files) openStdio(cmd *runner.Command, interactive bool, kept *capture, first func()) (s *stdio, err error) {
	s = &stdio{first: first}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if interactive && !isNull(c.stdin) {
		r, w, err := pipe(1, false)
		if err != nil {
			return s, err
		}
		cmd.Stdin, s.theirs = r, append(s.theirs, r)
		s.in = &pump{src: c.stdin, dst: w, end: func() { w.Close() }}
	}
	if kept != nil {
		if s.out, err = s.output(&cmd.Stdout, nil, &kept.out); err == nil {
			s.err, err = s.output(&cmd.Stderr, nil, &kept.err)
		}
		return s, err
	}
	if s.out, err = s.output(&cmd.Stdout, c.stdout, nil); err != nil {
		return s, err
	}
	if sameFile(c.stdout, c.stderr) {
		cmd.Stderr = cmd.Stdout // one pipe preserves the order of 2>&1
		return s, nil
	}
	s.err, err = s.output(&cmd.Stderr, c.stderr, nil)
	return s, err
}

// output creates the pipe of one output stream. A caller's /dev/null needs no pipe.
func (s *stdio) output(end **os.File, dst *os.File, keep *tail) (*pump, error) {
	if dst != nil && isNull(dst) {
		return nil, nil
	}
	r, w, err := pipe(0, true)
	if err != nil {
		return nil, err
	}
	*end, s.theirs = w, append(s.theirs, w)
	// Closing the reading end tells the command that its reader is gone.
	return &pump{src: r, dst: dst, keep: keep, polled: true, first: s.first, end: func() { r.Close() }}, nil
}

// start begins to copy. It is called once the command has its ends, so that a command that cannot be started
// consumes nothing of the caller's stdin.
func (s *stdio) start() {
	s.release()
	for _, p := range []*pump{s.in, s.out, s.err} {
		if p != nil {
			p.start()
		}
	}
}

// share makes the output wait for f until over is closed.
func (s *stdio) share(f floor, over <-chan struct{}) {
	for _, p := range []*pump{s.out, s.err} {
		if p != nil {
			p.floor, p.over = f, over
		}
	}
}

func (s *stdio) release() {
	for _, f := range s.theirs {
		f.Close()
	}
	s.theirs = nil
}

// close releases streams that were never started.
func (s *stdio) close() {
	s.release()
	for _, p := range []*pump{s.in, s.out, s.err} {
		if p != nil {
			p.end()
		}
	}
}

// drain copies what the command left in its pipes. It does not wait for end of file: in a persistent sandbox,
// background processes may hold the pipes open.
func (s *stdio) drain(limit time.Duration) error {
	outs := []*pump{s.out, s.err}
	drain(outs, limit)
	for _, p := range outs {
		if p == nil {
			continue
		}
		if err := p.copyError(); err != nil {
			return err
		}
	}
	return nil
}

// drain returns when every pump is drained, or no pump has moved a byte for limit (0: no limit).
func drain(pumps []*pump, limit time.Duration) {
	wait := 50 * time.Microsecond
	var seen int64
	since := time.Now()
	for {
		left, moved := false, int64(0)
		for _, p := range pumps {
			if p != nil {
				left = left || !p.drained()
				moved += p.moved.Load()
			}
		}
		if !left {
			return
		}
		if moved != seen {
			seen, since, wait = moved, time.Now(), 50*time.Microsecond
		}
		if limit > 0 && time.Since(since) > limit {
			return
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
	}
}
