package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"demesne/server"
	"demesne/session/audit"
	"demesne/session/events"
)

// Bounds of streams.
const (
	maxClients = 2000
	maxReplay  = 10_000 // events from the audit log
)

// stream sends events as they happen. With after, or Last-Event-ID of a client that connects again, it first sends what
// came since then, from the audit log; with last the newest events.
func (op *Operator) stream(w http.ResponseWriter, r *http.Request) {
	f, q, err := filterOf(r, "last")
	last, wrong := number(q, "last", 0)
	if err == nil {
		err = wrong
	}
	after, replay := f.After, q.Has("after")
	if id := r.Header.Get("Last-Event-ID"); id != "" && err == nil {
		if _, err = fmt.Sscanf(id, "%d", &after); err != nil {
			err = errors.New("header Last-Event-ID: not a number")
		}
		replay = true
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return
	case op.bus.Subscribers() >= maxClients:
		refuse(w, http.StatusServiceUnavailable, "too many clients wait for events")
		return
	}
	f.After = 0 // what is sent decides
	c := &follower{to: server.NewEventStream(w), filter: f, sent: after, stale: make(chan struct{}, 1)}
	defer op.enter(c)()
	from := uint64(math.MaxUint64)
	if replay || last > 0 {
		from = after
	}
	sub := op.bus.Subscribe(from)
	defer sub.Close()
	w.Header().Set("Cache-Control", "no-store")
	if c.begin(r.Context(), op.opts.Dir, sub, replay, int(min(last, events.Kept))) == nil {
		c.follow(r.Context(), sub)
	}
}

// follower is a client of the stream.
type follower struct {
	to     *server.EventStream
	filter audit.Filter
	sent   uint64        // the last event's number
	stale  chan struct{} // has an element if the list of sandboxes has changed
}

// enter makes changed tell c, until leave is called. A client that asks for some events only is not told.
func (op *Operator) enter(c *follower) (leave func()) {
	if c.filter.Type != "" || c.filter.Sandbox != "" {
		return func() {}
	}
	op.watching.Lock()
	defer op.watching.Unlock()
	op.clients[c] = true
	return func() {
		op.watching.Lock()
		defer op.watching.Unlock()
		delete(op.clients, c)
	}
}

// changed tells the clients that see one of these namespaces that the list of its sandboxes is another one. op.watching is held.
func (op *Operator) changed(namespaces map[string]bool) {
	for c := range op.clients {
		if len(namespaces) == 0 || c.filter.Namespace != nil && !namespaces[*c.filter.Namespace] {
			continue
		}
		select {
		case c.stale <- struct{}{}:
		default: // it is about to be told
		}
	}
}

// begin sends what happened before. Events that the bus no longer has come from the audit log.
func (c *follower) begin(ctx context.Context, dir string, sub *events.Subscription, replay bool, last int) (err error) {
	if replay {
		n := 0
		f := c.filter
		f.After = c.sent
		err = audit.Read(ctx, dir, f, func(e audit.Entry) bool {
			err := c.send(e.Event)
			n++
			return err == nil && n < maxReplay
		})
	}
	if last > 0 && err == nil {
		var kept []events.Event
		for len(sub.C) > 0 {
			if e, ok := <-sub.C; ok && c.filter.Match(&e) {
				kept = append(kept, e)
			}
		}
		for _, e := range kept[max(0, len(kept)-last):] {
			if err = c.send(e); err != nil {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	return c.to.Comment("connected")
}

// follow sends events until the client leaves or is too slow.
func (c *follower) follow(ctx context.Context, sub *events.Subscription) {
	tick := time.NewTicker(server.PingTime)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = c.to.Comment("ping")
		case e, ok := <-sub.C:
			if !ok { // the client connects again with Last-Event-ID
				c.to.Send("", "lost", []byte("{}"))
				return
			}
			err = c.send(e)
		case <-c.stale: // it has no number: a client that connects again looks at the list in any case
			err = c.to.Send("", "sandboxes", []byte("{}"))
		}
		if err != nil {
			return
		}
	}
}

func (c *follower) send(e events.Event) error {
	if e.ID <= c.sent || !c.filter.Match(&e) {
		return nil
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	c.sent = e.ID
	return c.to.Send(strconv.FormatUint(e.ID, 10), string(e.Type), text)
}
