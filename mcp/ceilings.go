package mcp

import (
	"fmt"
	"strconv"
	"time"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/runner"
	"demesne/session/operator"
)

// Policy decides what a model may ask. It is an [operator.Policy].
type Policy interface {
	Grant(runner.Limits, time.Duration) operator.Granted
	Time(time.Duration) time.Duration
	Image(name string) (imageref.Ref, images.PullPolicy, error)
	Rule(mode, words string) (use string, v operator.Verdict, err error)
	Budget() (cost float64, tokens int64)
}

// granted returns the limits of a sandbox, and the names of those that the call does not ask for. It refuses a limit above
// the operator's: a model can ask for less.
func granted(p Policy, asked runner.Limits) (l runner.Limits, filled []string, err error) {
	g := p.Grant(asked, 0)
	for _, r := range g.Reduced {
		return l, nil, fmt.Errorf("limits.%s: %s is more than %s, the ceiling (%s)", r.Name, plainNumber(r.Asked), plainNumber(r.Granted), operator.LimitVariable(r.Name))
	}
	return g.Limits, g.Filled, nil
}

// timeout returns the time limit if n seconds were requested. 0 means none.
func timeout(p Policy, n float64) (time.Duration, error) {
	most := p.Time(runner.Longest)
	if n > most.Seconds() {
		return 0, fmt.Errorf("timeout_seconds: %s is more than %s, the ceiling (DEMESNE_MAX_TIMEOUT)", plainNumber(n), plainNumber(most.Seconds()))
	}
	return p.Time(seconds(n)), nil
}

// cost reads max_cost_usd. Without it the operator's bound applies.
func (c *call) cost() (float64, error) {
	n, ok := c.args.numeric("max_cost_usd")
	most, _ := c.opts.Policy.Budget()
	switch {
	case !ok || !(n >= 0):
		return 0, fmt.Errorf("max_cost_usd must be a positive number")
	case most > 0 && n > most:
		return 0, fmt.Errorf("max_cost_usd: %s is more than %s, the ceiling (DEMESNE_MAX_COST_USD)", plainNumber(n), plainNumber(most))
	case n == 0:
		return most, nil
	}
	return n, nil
}

// tokens reads max_tokens. Without it the operator's bound applies.
func (c *call) tokens() (int64, error) {
	n, ok := c.args.numeric("max_tokens")
	_, most := c.opts.Policy.Budget()
	switch {
	case !ok || !(n >= 0 && n <= 1<<53) || n > 0 && n < 1:
		return 0, fmt.Errorf("max_tokens must be a positive number")
	case most > 0 && n > float64(most):
		return 0, fmt.Errorf("max_tokens: %s is more than %d, the ceiling (DEMESNE_MAX_TOKENS)", plainNumber(n), most)
	case n == 0:
		return most, nil
	}
	return int64(n), nil
}

func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
