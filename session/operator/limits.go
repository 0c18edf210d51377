package operator

import (
	"cmp"
	"runtime"
	"time"

	"demesne/runner"
	"demesne/runner/limits"
)

// Reduction is a limit that a caller gets less of than it asked for. Name is that of the limit: memory, cpus, pids or disk.
type Reduction struct {
	Name           string
	Asked, Granted float64
}

// Grant returns the limits of a sandbox whose caller asks for some. It lists those that the bounds reduce, and the names of
// those that the caller did not ask for and gets by the bounds.
func (p *Policy) Grant(asked runner.Limits) (granted runner.Limits, reduced []Reduction, filled []string) {
	granted = runner.Limits{Memory: max(asked.Memory, 0), CPUs: max(asked.CPUs, 0), PIDs: max(asked.PIDs, 0), Disk: max(asked.Disk, 0), Files: max(asked.Files, 0)}
	whole := func(name string, n *int64, most, usual int64) {
		switch {
		case *n == 0 && usual != 0:
			*n, filled = usual, append(filled, name)
		case most > 0 && *n > most:
			reduced = append(reduced, Reduction{name, float64(*n), float64(most)})
			*n = most
		}
	}
	whole("memory", &granted.Memory, p.most.Memory, p.Limits.Memory)
	switch {
	case granted.CPUs == 0 && p.Limits.CPUs > 0:
		granted.CPUs, filled = p.Limits.CPUs, append(filled, "cpus")
	case p.most.CPUs > 0 && granted.CPUs > p.most.CPUs:
		reduced = append(reduced, Reduction{"cpus", granted.CPUs, p.most.CPUs})
		granted.CPUs = p.most.CPUs
	}
	whole("pids", &granted.PIDs, p.most.PIDs, p.Limits.PIDs)
	whole("disk", &granted.Disk, p.most.Disk, p.Limits.Disk)
	return granted, reduced, filled
}

// Change returns the limits that replace those of a live sandbox. A zero leaves a limit as it is.
func (p *Policy) Change(asked runner.Limits) runner.Limits {
	usual := *p
	usual.Limits = runner.Limits{}
	granted, _, _ := usual.Grant(asked)
	return granted
}

// Time returns the time of a command whose caller asks for one; 0: the caller asks for none, or there is no bound.
func (p *Policy) Time(asked time.Duration) time.Duration {
	if p.MaxTimeout > 0 && (asked <= 0 || asked > p.MaxTimeout) {
		return p.MaxTimeout
	}
	return max(asked, 0)
}

// usual returns the limits of a sandbox whose caller asks for none: the operator's, within the bounds.
func usual(l, most, full runner.Limits) runner.Limits {
	within := func(n *int64, full, most int64) {
		if most > 0 && (full < 0 || full > most) {
			*n = most
		}
	}
	within(&l.Memory, full.Memory, most.Memory)
	within(&l.Disk, full.Disk, most.Disk)
	within(&l.PIDs, full.PIDs, most.PIDs)
	if most.CPUs > 0 && full.CPUs > most.CPUs {
		l.CPUs = most.CPUs
	}
	return l
}

// full returns the limits that a sandbox would have on this machine without bounds.
func full(l runner.Limits) runner.Limits {
	l = limits.Resolve(l)
	if l.CPUs <= 0 {
		l.CPUs = float64(runtime.NumCPU())
	}
	return l
}

// Budget returns the most that an agent may cost with its children, in US dollars and in tokens; 0: no bound.
func (p *Policy) Budget() (cost float64, tokens int64) { return p.MaxCost, p.MaxTokens }

// Spend returns the bounds of an agent whose caller asks for some, within the operator's; 0: none. It refuses more.
func (p *Policy) Spend(cost float64, tokens int64) (float64, int64, error) {
	switch {
	case p.MaxCost > 0 && cost > p.MaxCost:
		return 0, 0, refused("max_cost_usd: %v is more than %v, the operator's maximum", cost, p.MaxCost)
	case p.MaxTokens > 0 && tokens > p.MaxTokens:
		return 0, 0, refused("max_tokens: %d is more than %d, the operator's maximum", tokens, p.MaxTokens)
	}
	return cmp.Or(max(cost, 0), p.MaxCost), cmp.Or(max(tokens, 0), p.MaxTokens), nil
}
