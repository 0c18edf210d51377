package runs

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/runner"
)

// Recorder writes the events of a run. Its methods may be called concurrently.
type Recorder struct {
	store   *Store
	job     string
	request Request

	mu   sync.Mutex
	out  io.Writer
	left int64 // bytes of the log that output may still use
}

// Run returns the id of the run.
func (r *Recorder) Run() string { return idOf(r.job) }

// put writes an event. It ignores failures: a full disk must not end the run.
func (r *Recorder) put(e Event) {
	e.Data.Run = idOf(r.job)
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left -= int64(len(b)) + 1
	r.out.Write(append(b, '\n'))
}

// full reports whether the log has no room for more output.
func (r *Recorder) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left <= 0
}

// Started records that the run has its sandbox.
func (r *Recorder) Started(sandbox, name string) {
	r.put(Event{runStarted, Data{Identifier: r.request.Identifier, Sandbox: sandbox, Name: name, Started: now()}})
}

func now() time.Time { return time.Now().UTC() }

// finish records the end of the run.
func (r *Recorder) finish(ctx context.Context, err error) {
	switch {
	case err == nil:
		r.put(Event{runFinished, Data{Ended: now()}})
	case ctx.Err() != nil:
		r.put(Event{runFailed, Data{Ended: now(), Error: "canceled", Canceled: true}})
	default:
		r.put(Event{runFailed, Data{Ended: now(), Error: err.Error()}})
	}
}

// Output is the output of one command.
type Output struct {
	Stdout, Stderr io.Writer

	rec       *Recorder
	index     int
	began     time.Time
	out, errs *stream
}

// Command records the start of a command, which must be followed by Ended.
func (r *Recorder) Command(index int) *Output {
	o := &Output{rec: r, index: index, began: now()}
	o.out, o.errs = &stream{to: o, kind: commandStdout}, &stream{to: o, kind: commandStderr}
	o.Stdout, o.Stderr = o.out, o.errs
	s := &r.request.Commands[index]
	r.put(Event{commandStarted, Data{Index: &index, Shell: s.Shell, Argv: s.Argv, Cwd: s.Cwd, Started: o.began}})
	return o
}

// Ended records the end of the command, and reports whether it succeeded. res is nil if it did not start.
func (o *Output) Ended(res *runner.Result) (ok bool) {
	o.out.flush(true)
	o.errs.flush(true)
	ended := now()
	d := Result{ExitCode: 1, Status: failed, Seconds: ended.Sub(o.began).Seconds()}
	d.StdoutBytes, d.StdoutTruncated = o.out.all, o.out.cut
	d.StderrBytes, d.StderrTruncated = o.errs.all, o.errs.cut
	if res != nil {
		d.ExitCode, d.Spent = res.ExitCode, res.Spent
		switch {
		case res.Reason == runner.TimedOut:
			d.Status, d.Reason = timedOut, string(res.Reason)
		case res.Reason != runner.Exited:
			d.Reason = string(res.Reason)
		case res.ExitCode == 0:
			d.Status = succeeded
		}
	}
	o.rec.put(Event{commandFinished, Data{Index: &o.index, Ended: ended, Result: &d}})
	return d.Status == succeeded
}

// Bounds of output. A chunk waits for more, so that a program that writes single bytes makes few events.
const (
	maxStream = 1 << 20
	maxChunk  = 4 << 10
	chunkWait = 20 * time.Millisecond
)

// stream makes events of what a command writes to one stream.
type stream struct {
	to   *Output
	kind Kind

	mu      sync.Mutex
	held    []byte
	all     int64
	cut     bool // not all of it is recorded
	told    bool // the events say so
	waiting bool // flush will be called
}

// Write never fails.
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(b)
	if room := maxStream - s.all; int64(n) > room || s.to.rec.full() {
		b, s.cut = b[:max(min(room, int64(n)), 0)], true
		if s.to.rec.full() {
			b = nil
		}
	}
	s.all += int64(n)
	for len(b) > 0 {
		more := min(maxChunk-len(s.held), len(b))
		s.held, b = append(s.held, b[:more]...), b[more:]
		if len(s.held) == maxChunk {
			s.send(false)
		}
	}
	if len(s.held) > 0 && !s.waiting {
		s.waiting = true
		time.AfterFunc(chunkWait, func() { s.flush(false) })
	}
	return n, nil
}

// flush sends what waits. At the end that includes the beginning of a character.
func (s *stream) flush(end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = false
	s.send(end)
}

// send sends what waits, but the beginning of a character whose rest may come. s.mu is held.
func (s *stream) send(end bool) {
	chunk := s.held
	if !end {
		chunk = chunk[:len(chunk)-text.Partial(chunk)]
	}
	cut := s.cut && !s.told
	if len(chunk) == 0 && !(end && cut) {
		return
	}
	s.told = s.told || cut
	s.to.rec.put(Event{s.kind, Data{Index: &s.to.index, Chunk: string(chunk), Truncated: &cut}})
	s.held = append(s.held[:0], s.held[len(chunk):]...)
}
