package main

import (
	"os"
	"time"

	"demesne/runner"
)

// patience is how long a caller that reads nothing is waited for, once the command
// was ended by something other than itself.
const patience = 2 * time.Second

// stdio is a command's streams: the ends it gets and the pumps at the others.
type stdio struct {
	theirs   []*os.File // closed here as soon as the command has them
	in       *pump
	out, err *pump // err is nil if stderr goes where stdout does
	first    func()
}

// openStdio makes pipes for what cmd needs and puts their ends into it. kept, if not
// nil, takes the output in the caller's stead.
func (a *app) openStdio(cmd *runner.Command, interactive bool, kept *capture, first func()) (s *stdio, err error) {
	s = &stdio{first: first}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if interactive && !isNull(a.stdin) {
		r, w, err := pipe(1, false)
		if err != nil {
			return s, err
		}
		cmd.Stdin, s.theirs = r, append(s.theirs, r)
		s.in = &pump{src: a.stdin, dst: w, end: func() { w.Close() }}
	}
	if kept != nil {
		if s.out, err = s.output(&cmd.Stdout, nil, &kept.out); err == nil {
			s.err, err = s.output(&cmd.Stderr, nil, &kept.err)
		}
		return s, err
	}
	if s.out, err = s.output(&cmd.Stdout, a.stdout, nil); err != nil {
		return s, err
	}
	if sameFile(a.stdout, a.stderr) {
		cmd.Stderr = cmd.Stdout // one pipe keeps the order of 2>&1
		return s, nil
	}
	s.err, err = s.output(&cmd.Stderr, a.stderr, nil)
	return s, err
}

// output makes the pipe of one stream. A caller's /dev/null needs none.
func (s *stdio) output(end **os.File, dst *os.File, keep *tail) (*pump, error) {
	if dst != nil && isNull(dst) {
		return nil, nil
	}
	r, w, err := pipe(0, true)
	if err != nil {
		return nil, err
	}
	*end, s.theirs = w, append(s.theirs, w)
	// Closing the reading end is how the command hears that its reader is gone.
	return &pump{src: r, dst: dst, keep: keep, polled: true, first: s.first, end: func() { r.Close() }}, nil
}

// start begins to copy; the command has its ends by now. Nothing of the caller's
// stdin is read before, so that none is lost on a command that cannot be started.
func (s *stdio) start() {
	s.release()
	for _, p := range []*pump{s.in, s.out, s.err} {
		if p != nil {
			p.start()
		}
	}
}

// share has the output wait for the floor until over.
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

// close is for streams that were never started.
func (s *stdio) close() {
	s.release()
	for _, p := range []*pump{s.in, s.out, s.err} {
		if p != nil {
			p.end()
		}
	}
}

// drain copies what the command left in its pipes. It does not wait for their end:
// in a sandbox that lives on, background processes may hold them open.
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

// drain returns when every pump is drained, or none has moved a byte for limit
// (0: wait as long as it takes).
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
