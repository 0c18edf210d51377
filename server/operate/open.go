package operate

import (
	"context"
	"net/http"
	"time"

	"demesne/session/audit"
	"demesne/session/events"
)

// New opens the audit log, and passes its last events to the bus, so that clients can replay what happened before. The
// caller closes it.
func New(ctx context.Context, o Options, bus *events.Bus) (*Operator, error) {
	l, err := audit.Open(o.Dir)
	if err != nil {
		return nil, err
	}
	op := &Operator{opts: o, audit: l, bus: bus, owners: map[string]owner{}, ended: map[string]bool{}, clients: map[*follower]bool{}, listed: list{}, used: usages{of: map[string]*used{}}}
	op.metrics = newMetrics(o.Version, o.Sandboxes, bus.Subscribers)
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

// follow publishes what other programs append to the audit log, such as jobs', until ctx ends.
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
