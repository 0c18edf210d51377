package limits

import "sync"

// ledger is what the sandboxes of a runner were found to have written, by file system: what
// one of them can account for, another one is not asked about. What has ended has
// left its files, so nothing is taken out again.
type ledger struct {
	mu  sync.Mutex
	sum map[uint64]tally
}

// add notes a change of what is known on a device, and returns the sum.
func (l *ledger) add(dev uint64, change tally) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum == nil {
		l.sum = map[uint64]tally{}
	}
	l.sum[dev] = l.sum[dev].plus(change)
	return l.sum[dev]
}
