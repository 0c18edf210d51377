package proxyclient

import (
	"slices"
	"sync"

	"demesne/runner"
)

// ledgers holds the notes of one process, by sandbox.
type ledgers struct {
	mu  sync.Mutex
	all map[string]*ledger
}

type ledger struct {
	denied []runner.Blocked // denied by this process
	spent  []Spent          // spent with all processes so far
}

// mostNoted bounds the kinds of denials and the rules in a ledger, no matter how many the process sends. The process
// itself lists fewer denials, and a policy with more budgets is unlikely.
const mostNoted = 1024

// note records n.
func (l *ledgers) note(n Note) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]*ledger{}
	}
	b := l.all[n.Sandbox]
	if b == nil {
		b = &ledger{}
		l.all[n.Sandbox] = b
	}
	if n.Denied != nil && len(b.denied) < mostNoted {
		b.denied = most(b.denied, []runner.Blocked{*n.Denied})
	}
	if n.Spent != nil && len(b.spent) < mostNoted {
		b.spent = spentMost(b.spent, []Spent{*n.Spent})
	}
}

// take removes and returns the ledger of a sandbox.
func (l *ledgers) take(sandbox string) ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all[sandbox]
	delete(l.all, sandbox)
	if b == nil {
		return ledger{}
	}
	return *b
}

// most returns the entries of a and b; for an entry in both it keeps the larger count. It is pure.
func most(a, b []runner.Blocked) []runner.Blocked {
	all := slices.Clone(a)
	for _, x := range b {
		if i := indexOf(all, x); i < 0 {
			all = append(all, x)
		} else {
			all[i].Times = max(all[i].Times, x.Times)
		}
	}
	return all
}

// merge returns the entries of a and b; for an entry in both it adds the counts. It is pure.
func merge(a, b []runner.Blocked) []runner.Blocked {
	all := slices.Clone(a)
	for _, x := range b {
		if i := indexOf(all, x); i < 0 {
			all = append(all, x)
		} else {
			all[i].Times += x.Times
		}
	}
	return all
}

func indexOf(all []runner.Blocked, x runner.Blocked) int {
	return slices.IndexFunc(all, func(y runner.Blocked) bool { return x.Host == y.Host && x.Port == y.Port && x.Reason == y.Reason })
}

// spentMost returns the rules of a and b; for a rule in both it keeps the larger amounts. It is pure.
func spentMost(a, b []Spent) []Spent {
	all := slices.Clone(a)
	for _, x := range b {
		i := slices.IndexFunc(all, func(y Spent) bool { return x.Rule == y.Rule })
		if i < 0 {
			all = append(all, x)
			continue
		}
		y := &all[i]
		y.Bytes, y.Connections, y.Requests = max(y.Bytes, x.Bytes), max(y.Connections, x.Connections), max(y.Requests, x.Requests)
	}
	return all
}
