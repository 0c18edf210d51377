package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"sync"
	"syscall"
	"time"

	"demesne/proxy/audit"
	"demesne/proxy/redact"
)

// journal writes records, and keeps the denials. A quarter of a log's bytes is for what was denied: a refused request costs a
// sandbox nothing, and must not take the room of what is allowed. Where that has no room left, or cannot be
// written, nothing is admitted any more.
type journal struct {
	to      io.Writer // nil: nothing is written
	sandbox string
	hidden  *redact.Values
	tell    func(audit.Blocked) // nil: nobody is told

	mu              sync.Mutex
	allowed, denied share
	rest            tally  // denials of kinds that denied has no room for
	unsent          []byte // what could not be written yet, with the end of a line that was written in part
	failed          error  // of the last write
	ended           bool
	blocked         audit.Denials
}

func newJournal(c Config) *journal {
	j := &journal{to: c.Log, sandbox: c.Sandbox, tell: c.Denied}
	j.denied = newShare(c.Limits.Log / 4)
	j.allowed = newShare(c.Limits.Log - j.denied.left)
	j.rest.rec = audit.Record{Version: audit.Version, Sandbox: c.Sandbox, Via: "log", Host: "*", Verdict: audit.Denied,
		Reason: "denied too, of more kinds than the log has room for"}
	j.rest.size = int64(len(encode(j.rest.rec)) + countSize)
	j.denied.held = 2 * j.rest.size // for the first one, and for the sum at the end
	return j
}

// admit keeps room for the line about something that is to be allowed, until release. The error says why there is
// none.
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

// failure does not say where the log is: a sandbox reads it.
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

// write writes r down, or counts it. Of what was denied once, twice, four times… it tells.
func (j *journal) write(r audit.Record) {
	r.Version, r.Sandbox = audit.Version, j.sandbox
	r.Request, r.Error = j.hidden.Text(r.Request), j.hidden.Text(r.Error)
	now := time.Now()
	if r.Time.IsZero() {
		r.Time = now
	}
	r.Millis = now.Sub(r.Time).Milliseconds()
	r = bound(r, maxLogField)
	if b := j.enter(r); j.tell != nil && power(b.Times) {
		j.tell(b)
	}
}

// power says whether n is 1, 2, 4, 8…
func power(n int) bool { return bits.OnesCount(uint(n)) == 1 }

// enter gives what was counted of r's kind if it was denied.
func (j *journal) enter(r audit.Record) (b audit.Blocked) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Verdict == audit.Denied {
		b = j.blocked.Add(r)
	}
	if j.to != nil {
		j.send()
		j.line(r)
	}
	return b
}

func (j *journal) line(r audit.Record) {
	s := &j.allowed
	if r.Verdict == audit.Denied {
		s = &j.denied
	}
	counted := !j.ended && s.counts(r)
	if t := s.kinds[keyOf(r)]; t != nil && counted {
		if t.add(r); power(t.total) {
			j.flush(s, t, false)
		}
		return
	}
	line := encode(r)
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

// flush writes what was counted and not written. A share keeps room for the last time that this is done for a tally; before, there has to be
// more, and the log has to be one that can be written.
func (j *journal) flush(s *share, t *tally, last bool) {
	if last {
		s.held -= t.size
	}
	if t.since == 0 || !last && (s.room() < t.size || len(j.unsent) > 0) {
		return
	}
	line := encode(t.take())
	s.left -= int64(len(line))
	j.put(line)
}

// put writes a line, now or later.
func (j *journal) put(line []byte) {
	j.unsent = append(j.unsent, line...)
	j.send()
}

// send says whether everything is written. What was admitted is kept until it is: no more than was admitted
// before the first failure.
func (j *journal) send() bool {
	if len(j.unsent) == 0 {
		return true
	}
	n, err := j.to.Write(j.unsent)
	j.unsent, j.failed = append(j.unsent[:0], j.unsent[n:]...), err
	return len(j.unsent) == 0
}

// finish writes all that was counted. What comes later is not counted any more.
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

// denials are also written down as far as they were counted: the log is up to date when a caller asks.
func (j *journal) denials() []audit.Blocked {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.to != nil {
		for _, t := range j.denied.oldest {
			j.flush(&j.denied, t, false)
		}
	}
	return j.blocked.List()
}

// maxLogLine bounds a line, maxLogField a text in it, both in bytes; countSize is for what a line has more that
// stands for several decisions.
const (
	maxLogLine  = 4096
	maxLogField = 512
	countSize   = 256
)

// encode gives the line of r. In JSON a byte may take six.
func encode(r audit.Record) []byte {
	for most := maxLogField; ; most /= 2 {
		line, _ := json.Marshal(bound(r, most)) // no field of Record can fail
		if len(line) < maxLogLine-countSize || most < 8 {
			return append(line, '\n')
		}
	}
}

// bound bounds the texts of r: they come from a sandbox, or from servers.
func bound(r audit.Record, most int) audit.Record {
	for _, s := range []*string{&r.Host, &r.Request, &r.Address, &r.Rule, &r.Reason, &r.Error} {
		if len(*s) > most {
			*s = strings.ToValidUTF8((*s)[:most], "") + "…"
		}
	}
	return r
}
