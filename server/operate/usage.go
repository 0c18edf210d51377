package operate

import (
	"context"
	"slices"
	"sync"
	"time"

	"demesne/client"
	"demesne/runner"
)

// lookEvery is the pause between two looks of Watch.
const lookEvery = 2 * time.Second

// Bounds of what is kept of the use of sandboxes. One look of Watch measures some sandboxes; the others follow in the next ones.
// So many sandboxes are measured less often, and the work and the memory stay bounded.
const (
	measureTime  = time.Second // of one look
	usageKept    = 5 * time.Minute
	maxSamples   = 75 // of a sandbox
	measureEvery = 2 * lookEvery
	maxMeasured  = 50   // sandboxes in one look
	maxUsed      = 1000 // sandboxes with samples
)

// usages are the samples of the sandboxes that run, by id.
type usages struct {
	mu sync.Mutex
	of map[string]*used
}

// used are the samples of a sandbox, the oldest first.
type used struct {
	samples []client.UsageSample
	cpu     float64 // seconds at the last sample
	tried   time.Time
}

// next returns the sandboxes whose turn it is, those first that have waited longest, and forgets those that have no
// processes. A paused one uses what it used.
func (u *usages) next(all []runner.Info, now time.Time) (ids []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	live := map[string]bool{}
	for _, i := range all {
		if i.Spec.Lifetime != runner.Persistent || i.State != runner.Running && i.State != runner.Paused {
			continue
		}
		one := u.of[i.ID]
		if one == nil {
			if len(live) >= maxUsed {
				continue
			}
			one = &used{}
			u.of[i.ID] = one
		}
		live[i.ID] = true
		if i.State == runner.Running && now.Sub(one.tried) >= measureEvery {
			ids = append(ids, i.ID)
		}
	}
	for id := range u.of {
		if !live[id] {
			delete(u.of, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return u.of[a].tried.Compare(u.of[b].tried) })
	ids = ids[:min(len(ids), maxMeasured)]
	for _, id := range ids {
		u.of[id].tried = now
	}
	return ids
}

// take keeps a measure, and drops the samples that are too old.
func (u *usages) take(id string, m runner.Usage, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.of[id]
	if one == nil {
		return
	}
	s := client.UsageSample{Time: now.UTC(), Memory: m.Memory, Processes: m.Processes}
	if n := len(one.samples); n > 0 && m.CPU >= one.cpu {
		s.CPUs = (m.CPU - one.cpu) / max(now.Sub(one.samples[n-1].Time).Seconds(), 0.001)
	}
	one.cpu = m.CPU
	one.samples = append(one.samples, s)
	old := slices.IndexFunc(one.samples, func(s client.UsageSample) bool { return now.Sub(s.Time) <= usageKept })
	one.samples = slices.Delete(one.samples, 0, max(old, len(one.samples)-maxSamples))
}

// measure measures the sandboxes of a list whose turn it is.
func (u *usages) measure(ctx context.Context, all []runner.Info, usage func(ctx context.Context, id string) (runner.Usage, error)) {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	for _, id := range u.next(all, time.Now()) {
		if m, err := usage(ctx, id); err == nil {
			u.take(id, m, time.Now())
		}
	}
}

// samples returns the samples of a sandbox.
func (u *usages) samples(id string) []client.UsageSample {
	u.mu.Lock()
	defer u.mu.Unlock()
	if one := u.of[id]; one != nil {
		return slices.Clone(one.samples)
	}
	return nil
}
