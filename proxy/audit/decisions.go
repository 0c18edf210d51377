// Package decisions is what a proxy writes down, and what can be made of it afterwards.
//
//	log, err := audit.Read(file)            // a Record as JSON a line
//	words := audit.Suggest(log)             // rules that would have let through what was let through
//	blocked := audit.Replay(log, policy)    // what another policy would not have
//
// A [Record] is written when the connection, request or query it is about is over. Denials and queries that repeat are
// counted, and so is in the second half of a log what else repeats: one line has the sum of them. The package
// neither writes logs nor decides: it is for who reads them, and light.
package audit

import (
	"fmt"
	"slices"
	"time"

	"demesne/proxy/policy"
)

// Record is one decision and what became of it.
type Record struct {
	Version int       `json:"version"` // of this format, see [Version]
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox,omitempty"`
	Via     string    `json:"via"` // connect, socks, http, name, dns, accept, policy
	Host    string    `json:"host"`
	Port    uint16    `json:"port,omitempty"`
	Request string    `json:"request,omitempty"` // method and path, where they can be read; the kind of a query
	Address string    `json:"address,omitempty"` // that was dialled
	Verdict string    `json:"verdict"`           // allowed, denied, changed
	Rule    string    `json:"rule,omitempty"`
	Reason  string    `json:"reason"`
	Error   string    `json:"error,omitempty"` // allowed, and did not work
	In      int64     `json:"in"`              // bytes to the sandbox; of an HTTP request those of the body
	Out     int64     `json:"out"`             // and from it
	Millis  int64     `json:"ms"`

	// Of a line that stands for several decisions, which differ in time, bytes and duration only: how many, and when the
	// first and the last began. Time is Last then; In, Out and Millis are sums.
	Count int       `json:"count,omitempty"`
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Times is how many decisions r stands for.
func (r Record) Times() int { return max(r.Count, 1) }

// Total is how many decisions a log has.
func Total(log []Record) (n int) {
	for _, r := range log {
		n += r.Times()
	}
	return n
}

// Version is that of the format of a log's lines. What is added to it changes no version.
const Version = 1

// The verdicts there are.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Changed = "changed" // the policy was, from outside: Via is policy
)

// Decided gives r with what was decided about it.
func (r Record) Decided(d policy.Decision) Record {
	r.Rule, r.Reason, r.Verdict = d.Rule.String(), d.Reason, Denied
	if d.Allowed {
		r.Verdict = Allowed
	}
	return r
}

// Blocked is what was denied, for the result of a run.
type Blocked struct {
	Host   string `json:"host"`
	Port   uint16 `json:"port,omitempty"` // 0: a name was asked for
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

// Spent is what has been used up of a rule's budget, since the sandbox began.
type Spent struct {
	Rule        string // its text
	Bytes       int64
	Connections int64
	Requests    int64
}

// maxBlocked bounds the kinds of denials that are counted on their own.
const maxBlocked = 256

// Denials counts what was denied, each kind once, the first first. The zero Denials has none.
type Denials struct{ all []Blocked }

// Add counts r, and gives what was counted of its kind. Kinds too many are one, of the host "*".
func (d *Denials) Add(r Record) Blocked {
	kind := Blocked{Host: r.Host, Port: r.Port, Reason: r.Reason}
	i := d.index(kind)
	if i < 0 && len(d.all) >= maxBlocked {
		kind = Blocked{Host: "*", Reason: fmt.Sprintf("denied too, of more than %d kinds", maxBlocked)}
		i = d.index(kind)
	}
	if i < 0 {
		i, d.all = len(d.all), append(d.all, kind)
	}
	d.all[i].Times += r.Times()
	return d.all[i]
}

func (d *Denials) index(kind Blocked) int {
	return slices.IndexFunc(d.all, func(b Blocked) bool { return b.Host == kind.Host && b.Port == kind.Port && b.Reason == kind.Reason })
}

// List gives those there are so far.
func (d *Denials) List() []Blocked { return slices.Clone(d.all) }
