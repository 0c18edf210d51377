package operator

import (
	"cmp"
	"runtime"
	"time"

	"demesne/runner"
	"demesne/runner/limits"
)

// Grant returns what a caller gets who asks for limits, and for the time of a command.
func (p *Policy) Grant(asked runner.Limits, timeout time.Duration) Granted {
	g := Granted{Timeout: p.Time(timeout)}
	g.Limits = runner.Limits{Memory: max(asked.Memory, 0), CPUs: max(asked.CPUs, 0), PIDs: max(asked.PIDs, 0), Disk: max(asked.Disk, 0), Files: max(asked.Files, 0)}
	whole := func(name string, n *int64, most, usual int64) {
		switch {
		case *n == 0 && usual != 0:
			*n, g.Filled = usual, append(g.Filled, name)
		case most > 0 && *n > most:
			g.Reduced = append(g.Reduced, Reduction{name, float64(*n), float64(most)})
			*n = most
		}
	}
	whole("memory", &g.Limits.Memory, p.most.Memory, p.Limits.Memory)
	switch {
	case g.Limits.CPUs == 0 && p.Limits.CPUs > 0:
		g.Limits.CPUs, g.Filled = p.Limits.CPUs, append(g.Filled, "cpus")
	case p.most.CPUs > 0 && g.Limits.CPUs > p.most.CPUs:
		g.Reduced = append(g.Reduced, Reduction{"cpus", g.Limits.CPUs, p.most.CPUs})
		g.Limits.CPUs = p.most.CPUs
	}
	whole("pids", &g.Limits.PIDs, p.most.PIDs, p.Limits.PIDs)
	whole("disk", &g.Limits.Disk, p.most.Disk, p.Limits.Disk)
	if g.Timeout > 0 && timeout > g.Timeout {
		g.Reduced = append(g.Reduced, Reduction{"timeout", float64(timeout.Milliseconds()), float64(g.Timeout.Milliseconds())})
	}
	return g
}

// Change returns the limits that replace a live sandbox's. A zero leaves a limit as it is.
func (p *Policy) Change(asked runner.Limits) runner.Limits {
	usual := *p
	usual.Limits = runner.Limits{}
	return usual.Grant(asked, 0).Limits
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
