// Package operate is what operators of a server look at: events, the audit log, metrics, traces, and whether the server is
// ready.
//
//	operate.go  what the others share
//	record.go   where events arrive, and get a caller and a number; what holds while the audit log cannot be written
//	reap.go     finds sandboxes that ended without a call
//	usage.go    what sandboxes used in the last minutes
//	stream.go   GET /v1/events, server-sent events with replay
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
	"time"

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
	clients  map[*client]bool // of the stream
	listed   list             // what clients last saw of the sandboxes

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

// New opens the audit log, and passes its last events to the bus, so that clients can replay what happened before. The
// caller closes it.
func New(ctx context.Context, o Options, bus *events.Bus) (*Operator, error) {
	l, err := audit.Open(o.Dir)
	if err != nil {
		return nil, err
	}
	op := &Operator{opts: o, audit: l, bus: bus, owners: map[string]owner{}, ended: map[string]bool{}, clients: map[*client]bool{}, listed: list{}, used: usages{of: map[string]*used{}}}
	op.metrics = newMetrics(op)
	if op.traces, err = newTraces(ctx, o.Getenv, o.Version, o.Log); err != nil {
		l.Close()
		return nil, err
	}
	last, err := audit.Last(ctx, o.Dir, events.Kept)
	if err != nil {
		o.Log.Print(err)
	}
	for _, e := range last {
		bus.Publish(e.Event)
		op.own(&e.Event)
		op.seen = e.ID
	}
	go op.follow(ctx)
	return op, nil
}

// followEvery is how often entries of other programs are looked for.
const followEvery = 500 * time.Millisecond

// follow publishes what other programs append to the audit log, such as those of jobs, until ctx ends.
func (op *Operator) follow(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			op.mu.Lock()
			op.resume(ctx)
			if newest, err := audit.Newest(op.opts.Dir); err == nil && newest > op.seen {
				op.others(ctx, newest+1)
			}
			op.mu.Unlock()
		}
	}
}

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

// Close ends what New began.
func (op *Operator) Close() {
	op.traces.close()
	op.mu.Lock()
	defer op.mu.Unlock()
	if err := op.resume(context.Background()); err != nil {
		op.opts.Log.Printf("%d events are not recorded: %v", len(op.late.events)+op.late.lost, err)
	}
	if err := op.audit.Close(); err != nil {
		op.opts.Log.Printf("close audit log: %v", err)
	}
}

// own learns the owner of a new sandbox, and gives an event without a caller that of its sandbox. op.mu is held, except
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

// Routes calls add with each route that needs a caller.
func (op *Operator) Routes(add func(pattern string, h http.HandlerFunc)) {
	add("GET /v1/events", op.stream)
	add("GET /v1/audit", op.entries)
	add("GET /v1/audit/verify", op.forOperator(op.verify))
	add("GET /metrics", op.forOperator(op.metrics.serve))
}

// Open calls add with each route that needs no caller. Their answers say nothing about sandboxes.
func (op *Operator) Open(add func(pattern string, h http.HandlerFunc)) {
	add("GET /ready", op.serveReady)
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

// Prune removes old files of the audit log, and calls outputs for what sandboxes left, once an hour until ctx ends. A
// duration of 0 keeps all.
func (op *Operator) Prune(ctx context.Context, entries, left time.Duration, outputs func(ctx context.Context, before time.Time) error) {
	for ctx.Err() == nil {
		if entries > 0 {
			if _, err := op.audit.Prune(time.Now().Add(-entries)); err != nil {
				op.opts.Log.Print(err)
			}
		}
		if left > 0 {
			if err := outputs(ctx, time.Now().Add(-left)); err != nil && ctx.Err() == nil {
				op.opts.Log.Print(err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Hour):
		}
	}
}
