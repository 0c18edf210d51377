package operate

import (
	"context"
	"maps"
	"time"

	"demesne/client"
	"demesne/runner"
	"demesne/session/events"
)

// watchEvery is how often the sandboxes are listed, to find those that ended without a call of this server. While clients
// follow the events they are listed each lookEvery: once, for all clients.
const watchEvery = 5 * lookEvery

// alive has the persistent sandboxes in the last list.
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
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last []runner.Info
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if op.opts.Usage != nil {
			op.used.measure(ctx, last, op.opts.Usage)
		}
		whole := n%int(watchEvery/lookEvery) == 0
		if !whole && op.bus.Subscribers() == 0 {
			continue
		}
		all, err := op.opts.Sandboxes(ctx)
		if err != nil {
			continue
		}
		last = all
		if op.compare(all); whole {
			for id, cause := range a.update(all, time.Now()) {
				op.vanished(ctx, id, cause)
			}
		}
	}
}

// compare tells clients if the sandboxes differ from what they last saw.
func (op *Operator) compare(all []runner.Info) {
	op.watching.Lock()
	defer op.watching.Unlock()
	op.changed(op.listed.update(all))
}

// Listed takes the sandboxes that a client was shown, and tells the others if they differ. A sandbox that was made and removed
// between two looks of Watch may be among them, and compare must notice its end.
func (op *Operator) Listed(some []runner.Info) {
	op.watching.Lock()
	defer op.watching.Unlock()
	differs := map[string]bool{}
	for _, i := range some {
		if op.listed.see(&i) {
			op.listed[i.ID].mark(differs)
		}
	}
	op.changed(differs)
}

// Samples returns what a sandbox used in the last minutes, the oldest first. The caller may see the sandbox.
func (op *Operator) Samples(id string) []client.UsageSample { return op.used.samples(id) }

// list has the listed properties of each sandbox, by id.
type list map[string]shown

// shown has the listed properties of a sandbox that can change, and the namespaces that see it. Times of expiry change with
// each use, and are left out.
type shown struct {
	state         runner.State
	execs         int
	owner, shared string
}

// mark adds the namespaces that see a sandbox: "" is the operator's.
func (s shown) mark(namespaces map[string]bool) {
	namespaces[""], namespaces[s.owner], namespaces[s.shared] = true, true, true
}

// see takes a sandbox as it is now, and reports whether that differs.
func (l list) see(i *runner.Info) (differs bool) {
	if i.Spec.Lifetime != runner.Persistent {
		return false
	}
	now := shown{i.State, i.Execs, i.Spec.Frontend.Namespace(), i.Spec.Share.Namespace()}
	differs = l[i.ID] != now
	l[i.ID] = now
	return differs
}

// update takes the next list, and returns the namespaces for whom it differs; see mark.
func (l list) update(all []runner.Info) (differs map[string]bool) {
	differs, here := map[string]bool{}, map[string]bool{}
	for _, i := range all {
		if here[i.ID] = true; l.see(&i) {
			l[i.ID].mark(differs)
		}
	}
	for id, old := range maps.All(l) {
		if !here[id] {
			old.mark(differs)
			delete(l, id)
		}
	}
	return differs
}

// update takes the next list, and returns the removed sandboxes, with the cause. A sandbox is removed when two lists
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
