package operate

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/server"
	"demesne/session"
	"demesne/session/events"
)

// Resumed is the type of the entry after the events that the audit log could not get in time: so many late, and so many
// lost.
const Resumed events.Type = "audit.resumed"

// maxLate is how many events wait for an audit log that cannot be written.
const maxLate = 1000

// backlog has the events that the audit log lacks, the oldest first.
type backlog struct {
	events []events.Event
	late   int // events that it had, and that are recorded
	lost   int // events that found no place
}

func (b *backlog) add(e events.Event) {
	if len(b.events) >= maxLate {
		b.lost++
		return
	}
	b.events = append(b.events, e)
}

// Observe records an event of something that happens in any case. If the audit log cannot be written, the event waits until
// it can, and [Operator.Unrecorded] keeps more from beginning.
func (op *Operator) Observe(ctx context.Context, e events.Event) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if e, err := op.record(ctx, e); err != nil {
		op.late.add(e)
	}
}

// Record records an event before it takes effect. If the audit log cannot be written, Record fails, and the caller must stop.
func (op *Operator) Record(ctx context.Context, e events.Event) error {
	op.mu.Lock()
	defer op.mu.Unlock()
	_, err := op.record(ctx, e)
	return err
}

// Unrecorded returns [session.ErrUnrecorded] while the audit log cannot be written.
func (op *Operator) Unrecorded() error {
	if op.failure() != nil {
		return session.ErrUnrecorded
	}
	return nil
}

// failure returns why the audit log cannot be written, or nil.
func (op *Operator) failure() error {
	op.mu.Lock()
	defer op.mu.Unlock()
	return op.last
}

// record completes an event, counts it, and appends it to the audit log after the waiting events. If it has no caller, it gets
// ctx's. Listeners get it in any case. op.mu is held.
func (op *Operator) record(ctx context.Context, e events.Event) (events.Event, error) {
	c := server.CallerOf(ctx)
	if e.Caller == "" {
		e.Caller = c.Name
	}
	if e.Namespace == "" {
		e.Namespace = c.Namespace
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	op.traces.event(ctx, &e)
	op.metrics.event(&e)
	op.own(&e)
	err := op.resume(ctx)
	if err == nil {
		e, err = op.append(ctx, e)
	}
	if err != nil {
		op.metrics.auditErrors.Inc()
		if op.last == nil || err.Error() != op.last.Error() {
			op.opts.Log.Printf("events are not recorded, and no command starts: %v", err)
		}
		op.last = err
	}
	op.bus.Publish(e)
	return e, err
}

// resume appends the events that wait, if the audit log could not be written and now can. op.mu is held.
func (op *Operator) resume(ctx context.Context) error {
	if op.last == nil {
		return nil
	}
	b := &op.late
	for len(b.events) > 0 {
		if _, err := op.append(ctx, b.events[0]); err != nil {
			return err
		}
		b.events = b.events[1:]
		b.late++
	}
	_, err := op.append(ctx, events.Event{Type: Resumed, Detail: map[string]string{"late": strconv.Itoa(b.late), "lost": strconv.Itoa(b.lost)}})
	if err != nil {
		return err
	}
	op.opts.Log.Printf("events are recorded again: %d late, %d lost", b.late, b.lost)
	op.late, op.last = backlog{}, nil
	return nil
}

// append appends one event, and returns it with its number. op.mu is held.
func (op *Operator) append(ctx context.Context, e events.Event) (events.Event, error) {
	numbered, err := op.audit.Append(e)
	if err != nil {
		return e, err
	}
	if numbered.ID > op.seen+1 {
		op.others(context.WithoutCancel(ctx), numbered.ID)
	}
	op.seen = numbered.ID
	return numbered, nil
}

// refusals counts refused requests. One entry of the audit log has the refusals of a second: a client that tries tokens must not
// fill the disk.
type refusals struct {
	mu    sync.Mutex
	at    time.Time // of the last entry
	since int       // refused requests without an entry
}

// refusedEvery is the least time between two entries.
const refusedEvery = time.Second

// refused records a request that this server refused, and not a program in a sandbox: that has no route.
func (op *Operator) refused(r *http.Request, status int) {
	if r.Pattern == "" || status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return
	}
	op.refusals.mu.Lock()
	op.refusals.since++
	n, due := op.refusals.since, time.Since(op.refusals.at) >= refusedEvery
	if due {
		op.refusals.since, op.refusals.at = 0, time.Now()
	}
	op.refusals.mu.Unlock()
	if !due {
		return
	}
	from, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		from = r.RemoteAddr
	}
	path := text.SafeLine(r.URL.Path) // without the query: it may have a credential
	op.Observe(context.WithoutCancel(r.Context()), events.Event{
		Type: events.AccessRefused, Caller: server.CallerOf(r.Context()).Name,
		Detail: map[string]string{"status": strconv.Itoa(status), "method": method(r.Method), "path": path[:min(len(path), 200)], "from": from, "requests": strconv.Itoa(n)},
	})
}
