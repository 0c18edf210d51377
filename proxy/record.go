package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"syscall"
	"time"

	"demesne/internal/text"
	"demesne/proxy/redact"
)

// journal writes records and keeps the denials. Denials get a quarter of the log's bytes: a refused request costs
// a sandbox nothing and must not use up the space for allowed ones. When the space for allowed decisions is used
// up or the log cannot be written, the journal admits nothing.
type journal struct {
	to      io.Writer // nil: nothing is written
	sandbox string
	hidden  *redact.Values
	tell    func(Blocked) // nil: no reports

	mu              sync.Mutex
	allowed, denied share
	rest            tally  // denials of kinds that denied has no space to list
	unsent          []byte // lines not written yet, with the rest of a line that was written in part
	failed          error  // error of the last write
	ended           bool
	blocked         Denials
}

func newJournal(c Config) *journal {
	j := &journal{to: c.Log, sandbox: c.Sandbox, tell: c.Denied}
	j.denied = newShare(c.Limits.Log / 4)
	j.allowed = newShare(c.Limits.Log - j.denied.left)
	j.rest.rec = Record{Version: LogVersion, Sandbox: c.Sandbox, Via: "log", Host: "*", Verdict: Denied,
		Reason: "further denials: the log has no room for more kinds"}
	j.rest.size = int64(len(j.rest.rec.encode()) + countSize)
	j.denied.held = 2 * j.rest.size // for its first line, and for the sum at the end
	return j
}

// admit reserves space for the line about an allowed flow, until release. It returns an error when there is no
// space.
func (j *journal) admit() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to != nil {
		if !j.send() {
			return j.failure()
		}
		if j.allowed.room() < maxLogLine {
			return errors.New("the log of decisions is full")
		}
	}
	j.allowed.held += maxLogLine
	return nil
}

// failure does not name the log's path, because the sandbox can read the message.
func (j *journal) failure() error {
	var why syscall.Errno
	if !errors.As(j.failed, &why) {
		return errors.New("the log of decisions cannot be written")
	}
	return fmt.Errorf("the log of decisions cannot be written: %w", why)
}

func (j *journal) release() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.allowed.held -= maxLogLine
}

// write logs r or counts it. It calls tell when a denial has happened 1, 2, 4, 8… times.
func (j *journal) write(r Record) {
	r.Version, r.Sandbox = LogVersion, j.sandbox
	r.Request, r.Error = j.hidden.Text(r.Request), j.hidden.Text(r.Error)
	now := time.Now()
	if r.Time.IsZero() {
		r.Time = now
	}
	r.Millis = now.Sub(r.Time).Milliseconds()
	r = r.bound(maxLogField)
	if b := j.enter(r); j.tell != nil && power(b.Times) {
		j.tell(b)
	}
}

// power reports whether n is a power of two.
func power(n int) bool { return bits.OnesCount(uint(n)) == 1 }

// enter logs r. For a denial, and for a flow that broke, it returns the count of its kind.
func (j *journal) enter(r Record) (b Blocked) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Verdict == Denied || r.unmet != "" {
		b = j.blocked.Add(r)
	}
	if j.to != nil {
		j.send()
		j.line(r)
	}
	return b
}

func (j *journal) line(r Record) {
	s := &j.allowed
	if r.Verdict == Denied {
		s = &j.denied
	}
	counted := !j.ended && s.counts(r)
	if t := s.kinds[r.key()]; t != nil && counted {
		if t.add(r); power(t.total) {
			j.flush(s, t, false)
		}
		return
	}
	line := r.encode()
	size := int64(len(line))
	if s == &j.denied && (len(j.unsent) > 0 || s.room() < 2*size+countSize) {
		if j.rest.add(r); j.rest.total == 1 {
			j.flush(s, &j.rest, true)
		}
		return
	}
	s.left -= size
	j.put(line)
	if counted {
		if t := s.forgotten(); t != nil {
			j.flush(s, t, true)
		}
		s.remember(r, size+countSize)
	}
}

// flush writes the pending count of t. A share reserves space for the last flush of each tally. Earlier flushes
// need other space and a log that can be written.
func (j *journal) flush(s *share, t *tally, last bool) {
	if last {
		s.held -= t.size
	}
	if t.since == 0 || !last && (s.room() < t.size || len(j.unsent) > 0) {
		return
	}
	line := t.take().encode()
	s.left -= int64(len(line))
	j.put(line)
}

// put queues a line and tries to write it.
func (j *journal) put(line []byte) {
	j.unsent = append(j.unsent, line...)
	j.send()
}

// send reports whether everything is written. It keeps unwritten lines. They are bounded, since nothing is
// admitted after the first failure.
func (j *journal) send() bool {
	if len(j.unsent) == 0 {
		return true
	}
	n, err := j.to.Write(j.unsent)
	j.unsent, j.failed = append(j.unsent[:0], j.unsent[n:]...), err
	return len(j.unsent) == 0
}

// finish writes all pending counts. Later records are no longer counted.
func (j *journal) finish() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to == nil || j.ended {
		return
	}
	j.ended = true
	for _, s := range []*share{&j.allowed, &j.denied} {
		for _, t := range s.oldest {
			j.flush(s, t, true)
		}
		s.kinds, s.oldest = nil, nil
	}
	j.flush(&j.denied, &j.rest, true)
}

// denials returns the denials. It first writes their pending counts, so that the log is up to date when a caller
// asks.
func (j *journal) denials() []Blocked {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to != nil {
		for _, t := range j.denied.oldest {
			j.flush(&j.denied, t, false)
		}
	}
	return j.blocked.List()
}

// maxLogLine bounds a line and maxLogField a text in it, both in bytes. countSize is the extra space that a line
// needs to stand for several decisions.
const (
	maxLogLine  = 4096
	maxLogField = 512
	countSize   = 256
)

// encode returns the line of r. It shortens the texts until the line fits, since a byte may take six in JSON.
func (r Record) encode() []byte {
	for most := maxLogField; ; most /= 2 {
		line, _ := json.Marshal(r.bound(most)) // no field of Record can fail
		if len(line) < maxLogLine-countSize || most < 8 {
			return append(line, '\n')
		}
	}
}

// bound shortens the texts of r to most bytes. They come from a sandbox or from servers.
func (r Record) bound(most int) Record {
	for _, s := range []*string{&r.Host, &r.Request, &r.Address, &r.Rule, &r.Reason, &r.Error} {
		*s = text.Shorten(*s, most)
	}
	return r
}
