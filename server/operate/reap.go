package operate

import (
	"context"
	"maps"
	"time"

	"demesne/runner"
	"demesne/server/events"
)

// watchEvery is how often the sandboxes are listed, to find those that ended without a call of this server.
const watchEvery = 10 * time.Second

// alive are the persistent sandboxes of the last list.
type alive map[string]*kept

// kept is a persistent sandbox.
type kept struct {
	expires time.Time
	missed  bool // in the last list
}

// Watch reports the persistent sandboxes that the runner removes because their time is over, or that another program
// removes, until ctx ends.
func (op *Operator) Watch(ctx context.Context) {
	a := alive{}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if all, err := op.opts.Sandboxes(ctx); err == nil {
			for id, cause := range a.update(all, time.Now()) {
				op.vanished(ctx, id, cause)
			}
		}
	}
}

// update takes the next list, and returns the sandboxes that are gone, with the cause. A sandbox is gone when two lists
// lack it: a call that removes it reports that meanwhile.
func (a alive) update(all []runner.Info, now time.Time) map[string]string {
	gone, here := map[string]string{}, map[string]bool{}
	for _, i := range all {
		if here[i.ID] = true; i.Spec.Lifetime == runner.Persistent && i.State != runner.Snapshot {
			a[i.ID] = &kept{expires: i.Expires}
		}
	}
	for id, k := range maps.All(a) {
		switch {
		case here[id]:
		case !k.missed:
			k.missed = true
		default:
			cause := "removed by another program"
			if !k.expires.IsZero() && k.expires.Before(now) {
				cause = events.Timeout
			}
			gone[id] = cause
			delete(a, id)
		}
	}
	return gone
}

// vanished reports the end of a sandbox, unless an event has.
func (op *Operator) vanished(ctx context.Context, id, cause string) {
	op.mu.Lock()
	ended := op.ended[id]
	op.mu.Unlock()
	if !ended {
		op.Observe(ctx, events.Event{Type: events.SessionKilled, Sandbox: id, Detail: map[string]string{"action": "remove", "cause": cause}})
	}
}
