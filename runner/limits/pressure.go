package limits

import (
	"bytes"
	"sync"
	"time"
)

// pressure chooses which sandbox ends when the machine runs out of memory: the
// largest, and no other for as long as its memory takes to come back.
type pressure struct {
	mu    sync.Mutex
	used  map[*Group]int64
	last  time.Time
	left  int64 // MemAvailable
	asked time.Time

	tasks   int64 // of the machine
	counted time.Time
}

// available is MemAvailable, not older than 40 ms: one reading of 30 µs serves all
// sandboxes.
func (p *pressure) available(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.asked) > 40*time.Millisecond {
		p.left, p.asked = meminfo("MemAvailable"), now
	}
	return p.left
}

// running is how many threads the machine has, not older than 40 ms.
func (p *pressure) running(now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.counted) > 40*time.Millisecond {
		p.tasks, p.counted = machineTasks(), now
	}
	return p.tasks
}

// machineTasks reads the fourth field of /proc/loadavg, 2/345: those of all namespaces.
func machineTasks() int64 {
	var buf [128]byte
	text, err := slurp("/proc/loadavg", buf[:])
	if err != nil {
		return 0
	}
	_, all, _ := bytes.Cut(text, []byte("/"))
	return field(all, 0)
}

// Scarce says that the machine has so little memory left that none should be taken for what
// is not asked for.
func (h *Host) Scarce() bool {
	return h.pressure.available(time.Now()) < max(meminfo("MemTotal")/8, 256<<20)
}

const relief = 500 * time.Millisecond

func (p *pressure) note(g *Group, used int64) {
	p.mu.Lock()
	p.used[g] = used
	p.mu.Unlock()
}

func (p *pressure) largest(g *Group, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, other := range p.used {
		if other > p.used[g] {
			return false
		}
	}
	if now.Sub(p.last) < relief {
		return false
	}
	p.last = now
	return true
}

func (p *pressure) forget(g *Group) {
	p.mu.Lock()
	delete(p.used, g)
	p.mu.Unlock()
}
