package proxyclient

import (
	"slices"
	"sync"

	"demesne/runner"
)

// ledgers are what a process has noted, by sandbox.
type ledgers struct {
	mu  sync.Mutex
	all map[string]*ledger
}

type ledger struct {
	denied []runner.Blocked // by this process
	spent  []Spent          // by all
}

// mostNoted bounds the kinds of denials and the rules of a ledger, whatever the process says. It
// counts fewer of the former, and a policy with more budgets would be an odd one.
const mostNoted = 1024

// note takes what a process says.
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

// take gives what was noted about a sandbox, once.
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

// most has what either has, and of what both have the larger number. It is pure.
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

// merge adds what two processes counted. It is pure.
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

// spentMost has of each rule the most that either knows of. It is pure.
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
