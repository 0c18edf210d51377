// Package stream connects a command in a sandbox with the caller's terminal, pipes and signals.
//
// A command never gets a descriptor of the caller. [Files.OpenStdio] makes a pipe for each stream, and [Terminal] uses a
// terminal inside the sandbox; a Pump copies between that and the caller's own file, by splice(2) between two pipes.
// [Signals] forwards what the caller's program receives, and ends that program at the third interrupt.
//
// Everything here works with files and a session's process. It is independent of flags, and prints only what a question on the
// terminal needs: [Answers] reads an answer from a terminal that a command uses at the same time, and a [Floor] keeps the
// command's output from overwriting the question.
//
// The caller's descriptors keep their flags, because the caller shares them: descriptors are used in whatever mode they have.
package stream

import (
	"os"
	"time"

	"demesne/runner"
)

// Patience is how long a caller that reads nothing can delay the exit, once something other than the command
// itself has ended the command.
const Patience = 2 * time.Second

// Files are the caller's standard streams.
type Files struct{ Stdin, Stdout, Stderr *os.File }

// Stdio holds a command's streams: its ends of the pipes, and the pumps at the other ends.
type Stdio struct {
	theirs   []*os.File // the command's ends; closed here as soon as it has them
	in       *Pump
	out, err *Pump // err is nil if stderr shares stdout's pipe
	first    func()
}

// OpenStdio creates the pipes that cmd needs and puts its ends into cmd. A non-nil kept receives the output in
// place of the caller.
func (c *Files) OpenStdio(cmd *runner.Command, interactive bool, kept *Capture, first func()) (s *Stdio, err error) {
	s = &Stdio{first: first}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if interactive && !isNull(c.Stdin) {
		r, w, err := pipe(1, false)
		if err != nil {
			return s, err
		}
		cmd.Stdin, s.theirs = r, append(s.theirs, r)
		s.in = &Pump{src: c.Stdin, dst: w, end: func() { w.Close() }}
	}
	if kept != nil {
		if s.out, err = s.output(&cmd.Stdout, nil, &kept.out); err == nil {
			s.err, err = s.output(&cmd.Stderr, nil, &kept.err)
		}
		return s, err
	}
	if s.out, err = s.output(&cmd.Stdout, c.Stdout, nil); err != nil {
		return s, err
	}
	if sameFile(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout // one pipe preserves the order of 2>&1
		return s, nil
	}
	s.err, err = s.output(&cmd.Stderr, c.Stderr, nil)
	return s, err
}

// output creates the pipe of one output stream. A caller's /dev/null needs no pipe.
func (s *Stdio) output(end **os.File, dst *os.File, keep *tail) (*Pump, error) {
	if dst != nil && isNull(dst) {
		return nil, nil
	}
	r, w, err := pipe(0, true)
	if err != nil {
		return nil, err
	}
	*end, s.theirs = w, append(s.theirs, w)
	// Closing the reading end tells the command that its reader has closed.
	return &Pump{src: r, dst: dst, keep: keep, polled: true, first: s.first, end: func() { r.Close() }}, nil
}

// Start begins to copy. It is called once the command has its ends, so that a command that cannot be started
// consumes nothing of the caller's stdin.
func (s *Stdio) Start() {
	s.release()
	for _, p := range []*Pump{s.in, s.out, s.err} {
		if p != nil {
			p.start()
		}
	}
}

// Share makes the output wait for f until over is closed.
func (s *Stdio) Share(f Floor, over <-chan struct{}) {
	for _, p := range []*Pump{s.out, s.err} {
		if p != nil {
			p.floor, p.over = f, over
		}
	}
}

func (s *Stdio) release() {
	for _, f := range s.theirs {
		f.Close()
	}
	s.theirs = nil
}

// Close releases streams that were never started.
func (s *Stdio) Close() {
	s.release()
	for _, p := range []*Pump{s.in, s.out, s.err} {
		if p != nil {
			p.end()
		}
	}
}

// Drain copies what the command left in its pipes. It does not wait for end of file: in a persistent sandbox,
// background processes may hold the pipes open.
func (s *Stdio) Drain(limit time.Duration) error {
	outs := []*Pump{s.out, s.err}
	drain(outs, limit)
	for _, p := range outs {
		if p == nil {
			continue
		}
		if err := p.CopyError(); err != nil {
			return err
		}
	}
	return nil
}

// drain returns when every pump is drained, or no pump has moved a byte for limit (0: no limit).
func drain(pumps []*Pump, limit time.Duration) {
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
