package proxy

import (
	"encoding/json"
	"io"
	"math/bits"
	"sync"
	"time"

	"demesne/proxy/decisions"
	"demesne/proxy/redact"
)

// journal writes records, and keeps the denials.
type journal struct {
	mu      sync.Mutex
	to      io.Writer
	sandbox string
	left    int64 // bytes that may still be written
	full    bool
	blocked decisions.Denials
	hidden  *redact.Values
	denied  func(decisions.Blocked) // nil: nobody is told
}

func (j *journal) write(r decisions.Record) {
	r.Sandbox = j.sandbox
	r.Request, r.Error = j.hidden.Text(r.Request), j.hidden.Text(r.Error)
	now := time.Now()
	if r.Time.IsZero() {
		r.Time = now
	}
	r.Millis = now.Sub(r.Time).Milliseconds()
	if times := j.enter(r); j.denied != nil && bits.OnesCount(uint(times)) == 1 {
		j.denied(decisions.Blocked{Host: r.Host, Port: r.Port, Reason: r.Reason, Times: times})
	}
}

// enter writes r down, and counts it if it was denied: the first time is 1.
func (j *journal) enter(r decisions.Record) (times int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Verdict == decisions.Denied {
		times = j.blocked.Add(r)
	}
	j.line(r)
	return times
}

func (j *journal) line(r decisions.Record) {
	if j.to == nil || j.full {
		return
	}
	r.Version = decisions.Version
	line, err := json.Marshal(r)
	if err != nil {
		return // no field of Record can do that
	}
	if j.left -= int64(len(line)) + 1; j.left < 0 {
		j.full = true
		line = []byte(`{"version":1,"via":"log","verdict":"denied","reason":"the log has reached its bound: what follows is not in it"}`)
	}
	j.to.Write(append(line, '\n'))
}

func (j *journal) denials() []decisions.Blocked {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.blocked.List()
}
