// Package events carries what happens to sandboxes from where it happens to who watches: streams of clients, the audit
// log, and metrics. It links the standard library only.
package events

import (
	"context"
	"sync"
	"time"
)

// Type is the type of an event.
type Type string

// Types of events.
const (
	ExecutionStarted   Type = "execution.started"
	ExecutionCompleted Type = "execution.completed"
	ExecutionFailed    Type = "execution.failed"
	ExecutionTimeout   Type = "execution.timeout"
	SessionCreated     Type = "session.created"
	SessionKilled      Type = "session.killed"
	PackageInstalled   Type = "package.installed"
	EgressRequested    Type = "egress.requested"
	EgressApproved     Type = "egress.approved"
	EgressDenied       Type = "egress.denied"
	VaultAccessed      Type = "vault.accessed"
	ResourceExceeded   Type = "resource.exceeded"
	ArtifactSigned     Type = "artifact.signed"
	QueueBackpressure  Type = "queue.backpressure"
	AccessRefused      Type = "access.refused" // requests without a valid credential, or over a bound
	HostRequested      Type = "host.requested" // a command or file of the host, which a person decides about
	HostApproved       Type = "host.approved"
	HostDenied         Type = "host.denied" // by a person, the policy, a bound or its time
	HostStarted        Type = "host.started"
	HostCompleted      Type = "host.completed"
)

// Timeout is the detail "cause" of a sandbox's end: its time was over.
const Timeout = "timeout"

type causeKey struct{}

// WithCause returns a context of a call that has a cause, which is a detail of the events that it makes.
func WithCause(ctx context.Context, cause string) context.Context {
	return context.WithValue(ctx, causeKey{}, cause)
}

// CauseOf returns the cause of a call, or "".
func CauseOf(ctx context.Context) string {
	cause, _ := ctx.Value(causeKey{}).(string)
	return cause
}

// Event is one event. Texts that come from a sandbox are untrusted.
type Event struct {
	ID        uint64            `json:"id"` // rises; set by [Bus.Publish], or before it by an audit log
	Time      time.Time         `json:"time"`
	Type      Type              `json:"type"`
	Namespace string            `json:"namespace,omitempty"`
	Caller    string            `json:"caller,omitempty"`
	Sandbox   string            `json:"sandbox,omitempty"`
	Run       string            `json:"run,omitempty"` // of one command, job or run
	Detail    map[string]string `json:"detail,omitempty"`
}

// Kept is how many events a Bus keeps for subscribers that come later.
const Kept = 200

// Bus passes events on. The zero value is ready. It is safe for concurrent use.
type Bus struct {
	mu   sync.Mutex
	last uint64
	kept []Event
	subs map[*Subscription]bool
}

// Subscription receives events on C, which is closed when it is lost: the subscriber was too slow, or called Close.
type Subscription struct {
	C   <-chan Event
	c   chan Event
	bus *Bus
}

// queue is how many events a subscriber may be behind. It is memory of each idle one.
const queue = 128

// Publish numbers an event, unless it has a higher id than all before it, and passes it to all subscribers. It does not
// wait for any of them.
func (b *Bus) Publish(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.ID <= b.last {
		e.ID = b.last + 1
	}
	b.last = e.ID
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if b.kept = append(b.kept, e); len(b.kept) > Kept {
		b.kept = append([]Event(nil), b.kept[len(b.kept)-Kept:]...)
	}
	for s := range b.subs {
		select {
		case s.c <- e:
		default:
			b.drop(s)
		}
	}
}

// Subscribe returns a subscription, which begins with the kept events whose id is above after.
func (b *Bus) Subscribe(after uint64) *Subscription {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missed []Event
	for i, e := range b.kept {
		if e.ID > after {
			missed = b.kept[i:]
			break
		}
	}
	c := make(chan Event, len(missed)+queue)
	s := &Subscription{C: c, c: c, bus: b}
	for _, e := range missed {
		c <- e
	}
	if b.subs == nil {
		b.subs = map[*Subscription]bool{}
	}
	b.subs[s] = true
	return s
}

// Subscribers returns the number of subscriptions.
func (b *Bus) Subscribers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// Close ends a subscription. It may be repeated.
func (s *Subscription) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	s.bus.drop(s)
}

func (b *Bus) drop(s *Subscription) {
	if b.subs[s] {
		delete(b.subs, s)
		close(s.c)
	}
}
