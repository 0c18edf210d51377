package tree

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"demesne/agents"
	"demesne/internal/text"
	"demesne/runner"
)

// usageEvery is how often the records of requests are read. A budget ends a run within this time and the end of its
// sandbox.
const usageEvery = 50 * time.Millisecond

// requests are the requests of one agent to its model. Its methods are safe for concurrent use.
type requests struct {
	meter *agents.Meter
	gates []*gate // of the routes, in their order; empty: nothing bounds the requests

	mu     sync.Mutex
	files  []*gated
	status int // of the response to the latest one
	said   string
	failed int // how many of the latest ones in a row the server answered with a fault of its own
}

// gated are the records of a route that has a gate.
type gated struct {
	agents.Records
	gate *gate
}

// watch adds the file with the records of a route, and the gate of the route; nil: none.
func (r *requests) watch(path string, g *gate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = append(r.files, &gated{agents.Records{Path: path}, g})
}

// counted is a request whose usage is known.
type counted struct {
	amount
	gate   *gate // that was asked about it; nil: none
	number int64
}

// read counts new records.
func (r *requests) read() (all []counted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.files {
		f.Read(func(rec runner.UsageRecord) {
			if r.status, r.said = rec.Status, rec.Fault; rec.Status < http.StatusInternalServerError {
				r.failed = 0
			} else {
				r.failed++
			}
			all = append(all, counted{r.add(rec), f.gate, rec.Number})
		})
	}
	return all
}

// add counts a record, and returns what the request used. mu is held.
func (r *requests) add(rec runner.UsageRecord) (a amount) {
	cost, tokens := r.meter.Cost(), r.meter.Tokens()
	r.meter.Add(rec)
	a.cost, a.tokens = r.meter.Cost()-cost, r.meter.Tokens()-tokens
	if rec.Status < http.StatusBadRequest {
		a.turns = 1
	}
	return a
}

// lost counts a request that was forwarded and has no record, by an estimate.
func (r *requests) lost(m runner.GateMessage) amount {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(runner.UsageRecord{Time: time.Now(), Asked: m.Model, Sent: m.Sent, MaxOutput: m.MaxOutput, Cut: true})
}

// refused reports whether the server refused the credential of the latest request.
func (r *requests) refused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status == http.StatusUnauthorized
}

// fault describes the server's latest answers if all of them report a fault of the server; else it is empty. The agent's
// program tries again, until one of its own bounds, or one of the run, ends it.
func (r *requests) fault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := "request"
	switch r.failed {
	case 0:
		return ""
	case 1:
	default:
		last = fmt.Sprintf("%d requests", r.failed)
	}
	said := ""
	if r.said != "" {
		said = fmt.Sprintf(" (%s)", text.SafeLine(r.said))
	}
	return fmt.Sprintf("the model's server answered the last %s with status %d%s", last, r.status, said)
}
