package limits

import "sync"

// ledger sums the measured writes of a runner's sandboxes by file system. A loss that one sandbox accounts for
// is not attributed to another. Entries are never removed, because an ended sandbox leaves its files.
type ledger struct {
	mu  sync.Mutex
	sum map[uint64]tally
}

// add records a change on a device and returns the sum.
func (l *ledger) add(dev uint64, change tally) tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum == nil {
		l.sum = map[uint64]tally{}
	}
	l.sum[dev] = l.sum[dev].plus(change)
	return l.sum[dev]
}
