// Package operate has what operators of a server look at: events, the audit log, metrics, traces, and whether the server is
// ready.
//
//	operate.go  what the others share
//	record.go   where events arrive, and get a caller and a number; what holds while the audit log cannot be written
//	reap.go     finds sandboxes that ended without a call
//	usage.go    what sandboxes used in the last minutes
//	stream.go   GET /v1/events, server-sent events with replay
//	answer.go   answers in JSON, and errors in the shape of /v1
//	entries.go  GET /v1/audit and /v1/audit/verify
//	refused.go  records requests without a valid credential
//	ready.go    GET /ready
//	metrics.go  GET /metrics, in the format of Prometheus; http.go: what requests are counted by
//	trace.go    traces by OpenTelemetry, if the environment asks for them
//
// Callers see the events of their own namespace, and the operator all. Texts of events that come from sandboxes are
// untrusted; they are bounded, and always JSON strings. Package session removes the values of credentials from events
// before they arrive here.
package operate

import (
	"context"
	"log"
	"net/http"
	"sync"

	"demesne/runner"
	"demesne/server"
	"demesne/session/audit"
	"demesne/session/events"
)

// Options configures an Operator.
type Options struct {
	Dir     string      // of the audit log
	Log     *log.Logger // messages for the operator
	Version string
	// Sandboxes lists the sandboxes of the machine's user; an error means that the runner does not work.
	Sandboxes func(context.Context) ([]runner.Info, error)
	// Usage measures a running sandbox, and starts none. nil: nothing is measured.
	Usage    func(ctx context.Context, id string) (runner.Usage, error)
	Requests bool                // log each request
	Getenv   func(string) string // of OTEL_ variables
}

// Operator records events, and answers questions about the server. It is safe for concurrent use.
type Operator struct {
	opts    Options
	audit   *audit.Log
	bus     *events.Bus
	metrics *metrics
	traces  *traces
	ready   readiness

	refusals refusals

	watching sync.Mutex
	clients  map[*follower]bool // of the stream
	listed   list               // what clients last saw of the sandboxes

	used usages

	mu     sync.Mutex
	owners map[string]owner // of sandboxes, for events without a request
	ended  map[string]bool  // sandboxes whose end was reported
	seen   uint64           // the last entry of the audit log that is on the bus
	last   error            // why the audit log cannot be written, or nil
	late   backlog
}

// owner is the caller that made a sandbox.
type owner struct{ name, namespace string }

// maxOwners bounds the sandboxes whose owner is known.
const maxOwners = 10_000

// others publishes the entries before a number that are not on the bus: other programs made them. op.mu is held.
func (op *Operator) others(ctx context.Context, before uint64) {
	audit.Read(ctx, op.opts.Dir, audit.Filter{After: op.seen}, func(e audit.Entry) bool {
		if e.ID >= before {
			return false
		}
		op.metrics.event(&e.Event)
		op.own(&e.Event)
		op.bus.Publish(e.Event)
		op.seen = e.ID
		return true
	})
}

// own learns the owner of a new sandbox, and gives an event without a caller its sandbox's owner. op.mu is held, except
// by New.
func (op *Operator) own(e *events.Event) {
	known, ok := op.owners[e.Sandbox]
	switch {
	case e.Sandbox == "":
	case e.Type == events.SessionCreated && e.Caller != "":
		if len(op.owners) >= maxOwners {
			clear(op.owners)
		}
		op.owners[e.Sandbox] = owner{e.Caller, e.Namespace}
	case ok && e.Caller == "":
		e.Caller, e.Namespace = known.name, known.namespace
	}
	if e.Type == events.SessionKilled && e.Detail["action"] != "stop" {
		delete(op.owners, e.Sandbox)
		if len(op.ended) >= maxOwners {
			clear(op.ended)
		}
		op.ended[e.Sandbox] = true
	}
}

// RunBegan counts a run, which is a list of commands that a client started and may leave.
func (op *Operator) RunBegan() { op.metrics.activeRuns.Add(1) }

// RunEnded counts the end of a run.
func (op *Operator) RunEnded(failed, canceled bool) {
	op.metrics.activeRuns.Add(-1)
	status := "completed"
	switch {
	case canceled:
		status = "canceled"
	case failed:
		status = "failed"
	}
	op.metrics.runs.WithLabelValues(status).Inc()
}

// forOperator refuses other callers.
func (op *Operator) forOperator(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !server.CallerOf(r.Context()).Operator {
			refuse(w, http.StatusForbidden, "only the operator may see this")
			return
		}
		h(w, r)
	}
}
