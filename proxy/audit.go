package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"demesne/proxy/policy"
)

// Record is one decision and its outcome.
type Record struct {
	Version int       `json:"version"` // version of this format, see [LogVersion]
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox,omitempty"`
	Via     string    `json:"via"` // connect, socks, http, name, host, dns, accept, policy, route
	Host    string    `json:"host"`
	Port    uint16    `json:"port,omitempty"`
	Request string    `json:"request,omitempty"` // method and path, if they can be read; the type of a DNS query
	Address string    `json:"address,omitempty"` // address that was dialled
	Verdict string    `json:"verdict"`           // allowed, denied, asked, changed
	Rule    string    `json:"rule,omitempty"`
	Group   string    `json:"group,omitempty"` // the destination is a sandbox of this group
	Reason  string    `json:"reason"`
	Error   string    `json:"error,omitempty"` // why an allowed flow failed
	In      int64     `json:"in"`              // bytes to the sandbox; for an HTTP request, the size of the response's body
	Out     int64     `json:"out"`             // bytes from the sandbox
	Millis  int64     `json:"ms"`

	// Count, First and Last are set in a line for several decisions, which differ only in time, bytes and
	// duration. First and Last are the start times of the first and the last. Time equals Last; In, Out and
	// Millis are sums.
	Count int       `json:"count,omitempty"`
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`

	allow  string // see policy.Decision; not logged
	unmet  string // why an allowed flow counts among the denials; see unmetBy
	failed bool   // see Blocked
}

// Times returns how many decisions r stands for.
func (r Record) Times() int { return max(r.Count, 1) }

// CountDecisions returns how many decisions a log holds.
func CountDecisions(log []Record) (n int) {
	for _, r := range log {
		n += r.Times()
	}
	return n
}

// LogVersion is the version of the log's line format. Added fields do not change it.
const LogVersion = 1

// The possible verdicts.
const (
	Allowed = "allowed"
	Denied  = "denied"
	Pending = "asked"   // a name got an address, and a person is asked when a connection to it opens
	Changed = "changed" // the policy or a route changed, from outside; Via is policy or route
)

// unmetBy returns r for an allowed flow that could not do what it is for, because of a rule's bound or a name: it is counted
// among the denials, with that reason. failed means that no rule is the cause.
func (r Record) unmetBy(failed bool, format string, args ...any) Record {
	r.unmet, r.failed = fmt.Sprintf(format, args...), failed
	return r
}

// Decided returns r with the decision filled in.
func (r Record) Decided(d policy.Decision) Record {
	r.Rule, r.Group, r.Reason, r.Verdict, r.allow = d.Rule.String(), d.Group, d.Reason, Denied, d.Allow
	switch {
	case d.Allowed && d.Unknown:
		r.Verdict = Pending
	case d.Allowed:
		r.Verdict = Allowed
	}
	return r
}

// Blocked is a kind of denial and its count, for the result of a run.
type Blocked struct {
	Host   string `json:"host"`
	Port   uint16 `json:"port,omitempty"` // 0: a DNS query
	Reason string `json:"reason"`
	Allow  string `json:"allow,omitempty"` // the rule that would allow it
	Times  int    `json:"times"`
	Failed bool   `json:"failed,omitempty"` // it was allowed, and failed
}

// Spent is the used part of a rule's budget, since the sandbox began.
type Spent struct {
	Rule        string // its text
	Bytes       int64
	Connections int64
	Requests    int64
}

// maxBlocked bounds the kinds of denials that are counted separately.
const maxBlocked = 256

// Denials counts denials by kind, in order of first occurrence. The zero value is empty and ready to use.
type Denials struct{ all []Blocked }

// Add counts r and returns the count of its kind. Beyond maxBlocked kinds, all new ones share one kind with host
// "*".
func (d *Denials) Add(r Record) Blocked {
	kind := Blocked{Host: r.Host, Port: r.Port, Reason: cmp.Or(r.unmet, r.Reason), Allow: r.allow, Failed: r.failed}
	i := d.index(kind)
	if i < 0 && len(d.all) >= maxBlocked {
		kind = Blocked{Host: "*", Reason: fmt.Sprintf("further denials: more than %d kinds", maxBlocked)}
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

// List returns the counts so far.
func (d *Denials) List() []Blocked { return slices.Clone(d.all) }
