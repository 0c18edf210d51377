package proxy

import (
	"encoding/json"
	"io"
	"slices"
	"sync"
	"time"

	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// Record is one decision and what became of it, written when it is over.
type Record struct {
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox,omitempty"`
	Via     string    `json:"via"` // connect, socks, http, name, dns, accept
	Host    string    `json:"host"`
	Port    uint16    `json:"port,omitempty"`
	Request string    `json:"request,omitempty"` // method and path, where they can be read; the kind of a query
	Address string    `json:"address,omitempty"` // that was dialled
	Verdict string    `json:"verdict"`           // allowed, denied
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason"`
	Error   string    `json:"error,omitempty"` // allowed, and did not work
	In      int64     `json:"in"`              // bytes to the sandbox
	Out     int64     `json:"out"`             // and from it
	Millis  int64     `json:"ms"`
}

func (r Record) decided(d policy.Decision) Record {
	r.Rule, r.Reason, r.Verdict = d.Rule.String(), d.Reason, "denied"
	if d.Allowed {
		r.Verdict = "allowed"
	}
	return r
}

func (r Record) denied(d policy.Decision) Record {
	d.Allowed = false
	return r.decided(d)
}

// Blocked is what was denied, for the result of a run.
type Blocked struct {
	Host   string `json:"host"`
	Port   uint16 `json:"port,omitempty"` // 0: a name was asked for
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

// maxBlocked bounds the kinds of denials that are kept for the result; the log has
// them all.
const maxBlocked = 256

// journal writes records, and keeps the denials.
type journal struct {
	mu      sync.Mutex
	to      io.Writer
	sandbox string
	left    int64 // bytes that may still be written
	full    bool
	blocked []Blocked
	hidden  *redact.Values
}

func (j *journal) write(r Record) {
	r.Sandbox = j.sandbox
	r.Request, r.Error = j.hidden.Text(r.Request), j.hidden.Text(r.Error)
	now := time.Now()
	if r.Time.IsZero() {
		r.Time = now
	}
	r.Millis = now.Sub(r.Time).Milliseconds()
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Verdict == "denied" {
		j.block(r)
	}
	if j.to == nil || j.full {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		return // no field of Record can do that
	}
	if j.left -= int64(len(line)) + 1; j.left < 0 {
		j.full = true
		line = []byte(`{"via":"log","verdict":"denied","reason":"the log has reached its bound: what follows is not in it"}`)
	}
	j.to.Write(append(line, '\n'))
}

func (j *journal) block(r Record) {
	i := slices.IndexFunc(j.blocked, func(b Blocked) bool { return b.Host == r.Host && b.Port == r.Port && b.Reason == r.Reason })
	switch {
	case i >= 0:
		j.blocked[i].Times++
	case len(j.blocked) < maxBlocked:
		j.blocked = append(j.blocked, Blocked{r.Host, r.Port, r.Reason, 1})
	}
}

func (j *journal) denials() []Blocked {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.blocked)
}
