package proxy

import (
	"fmt"
	"sync"
	"sync/atomic"

	"demesne/proxy/policy"
)

// budget counts the traffic that a rule has let through.
type budget struct {
	rule                  string
	limit                 policy.Budget
	bytes                 atomic.Int64
	connections, requests atomic.Int64
	cut                   atomic.Bool

	tell func(Spent) // nil: no reports
	mu   sync.Mutex
	told int64 // bytes reported so far
}

func (b *budget) bounded() bool   { return b.limit.Bytes > 0 }
func (b *budget) exhausted() bool { return b.cut.Load() }

// usedUp is the reason of a denial, and of a connection that was cut.
func (b *budget) usedUp() string {
	return fmt.Sprintf("rule %q: its budget of %d bytes is used up", b.rule, b.limit.Bytes)
}

func (b *budget) left() int64 { return b.limit.Bytes - b.bytes.Load() }

// some takes up to n bytes and returns how many it took. Fewer than n means that the budget is exhausted.
func (b *budget) some(n int64) int64 {
	over := b.bytes.Add(n) - b.limit.Bytes
	if over > 0 {
		over = min(over, n)
		b.bytes.Add(-over)
		b.cut.Store(true)
		n -= over
	}
	b.say(b.bytes.Load())
	return n
}

// take counts n bytes that were already moved. It returns false when they exceed the budget.
func (b *budget) take(n int64) bool {
	if !b.bounded() {
		return true
	}
	spent := b.bytes.Add(n)
	if spent > b.limit.Bytes {
		b.cut.Store(true)
	}
	b.say(spent)
	return !b.cut.Load()
}

// say reports bytes before they are forwarded. It reports up to a sixteenth of the limit ahead, so that not every
// byte needs a report. A proxy that takes over may thus have slightly less left, but never more than the budget
// allows.
func (b *budget) say(bytes int64) {
	if b.tell == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if bytes <= b.told && bytes < b.limit.Bytes {
		return
	}
	b.told = max(bytes, min(bytes+b.limit.Bytes/16, b.limit.Bytes-1))
	b.tell(b.spent(b.told))
}

func (b *budget) spent(bytes int64) Spent {
	return Spent{Rule: b.rule, Bytes: bytes, Connections: b.connections.Load(), Requests: b.requests.Load()}
}

// budgets holds the budgets of all rules by their text. A rule that a new policy repeats keeps its count.
type budgets struct {
	before []Spent // spent under earlier proxies
	tell   func(Spent)

	mu  sync.Mutex
	all map[string]*budget
}

// unbounded is the budget of rules without one.
var unbounded = &budget{}

func (s *budgets) of(r policy.Rule) *budget {
	if r.Budget() == (policy.Budget{}) {
		return unbounded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*budget{}
	}
	b := s.all[r.String()]
	if b == nil {
		b = s.begin(r)
		s.all[b.rule] = b
	}
	return b
}

// begin returns the budget of a rule that this proxy uses for the first time.
func (s *budgets) begin(r policy.Rule) *budget {
	b := &budget{rule: r.String(), limit: r.Budget(), tell: s.tell}
	for _, x := range s.before {
		if x.Rule == b.rule {
			b.bytes.Store(x.Bytes)
			b.connections.Store(x.Connections)
			b.requests.Store(x.Requests)
			b.cut.Store(b.bounded() && x.Bytes >= b.limit.Bytes)
			b.told = x.Bytes
		}
	}
	return b
}

// charge counts a connection or request. It returns the reason for a denial when the budget is spent, or "".
func (s *budgets) charge(r policy.Rule, request bool) (why string) {
	b := s.of(r)
	used, limit, what := &b.connections, b.limit.Connections, "connections"
	if request {
		used, limit, what = &b.requests, b.limit.Requests, "requests"
	}
	switch {
	case b.exhausted():
		return b.usedUp()
	case limit > 0 && used.Add(1) > limit:
		return fmt.Sprintf("rule %q: its budget of %d %s is used up", r, limit, what)
	case limit > 0 && b.tell != nil:
		b.tell(b.spent(b.bytes.Load()))
	}
	return ""
}
