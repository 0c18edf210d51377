package mcp

import (
	"fmt"
	"strconv"
	"time"

	"demesne/runner"
)

// Ceilings are the maximum limits and timeout that a model may request. 0 means no ceiling.
type Ceilings struct {
	Limits  runner.Limits
	Timeout time.Duration
	Cost    float64 // US dollars that one agent may cost, with its children
	Tokens  int64   // that one agent may use, with its children
	// Unasked are the limits for a call that requests none, if the runner's defaults exceed the ceilings.
	Unasked runner.Limits
}

// bound refuses limits above the ceilings, and sets limits that were not requested to Unasked. It returns the names
// of those that it set.
func (c Ceilings) bound(l *runner.Limits) (filled []string, err error) {
	for _, row := range []struct {
		name              string
		asked, most, open float64
		fill              func()
	}{
		{"memory", float64(l.Memory), float64(c.Limits.Memory), float64(c.Unasked.Memory), func() { l.Memory = c.Unasked.Memory }},
		{"cpus", l.CPUs, c.Limits.CPUs, c.Unasked.CPUs, func() { l.CPUs = c.Unasked.CPUs }},
		{"pids", float64(l.PIDs), float64(c.Limits.PIDs), float64(c.Unasked.PIDs), func() { l.PIDs = c.Unasked.PIDs }},
		{"disk", float64(l.Disk), float64(c.Limits.Disk), float64(c.Unasked.Disk), func() { l.Disk = c.Unasked.Disk }},
	} {
		switch {
		case row.asked == 0 && row.open > 0:
			row.fill()
			filled = append(filled, row.name)
		case row.most > 0 && row.asked > row.most:
			return nil, fmt.Errorf("limits.%s: %s is more than %s, the ceiling (%s)", row.name, plainNumber(row.asked), plainNumber(row.most), variable[row.name])
		}
	}
	return filled, nil
}

// variable maps each limit to its environment variable.
var variable = map[string]string{
	"memory": "DEMESNE_MAX_MEMORY", "cpus": "DEMESNE_MAX_CPUS", "pids": "DEMESNE_MAX_PIDS", "disk": "DEMESNE_MAX_DISK",
}

// timeout returns the time limit for a request of n seconds. 0 means the backend's own limit.
func (c Ceilings) timeout(n float64) (time.Duration, error) {
	switch {
	case c.Timeout > 0 && n > c.Timeout.Seconds():
		return 0, fmt.Errorf("timeout_seconds: %s is more than %s, the ceiling (DEMESNE_MAX_TIMEOUT)", plainNumber(n), plainNumber(c.Timeout.Seconds()))
	case !(n > 0) && c.Timeout > 0 && c.Timeout < runner.Longest:
		return c.Timeout, nil
	}
	return seconds(n), nil
}

// cost reads max_cost_usd. Without it the ceiling applies.
func (c Ceilings) cost(a args) (float64, error) {
	n, ok := a.numeric("max_cost_usd")
	switch {
	case !ok || !(n >= 0):
		return 0, fmt.Errorf("max_cost_usd must be a positive number")
	case c.Cost > 0 && n > c.Cost:
		return 0, fmt.Errorf("max_cost_usd: %s is more than %s, the ceiling (DEMESNE_MAX_COST_USD)", plainNumber(n), plainNumber(c.Cost))
	case n == 0:
		return c.Cost, nil
	}
	return n, nil
}

// tokens reads max_tokens. Without it the ceiling applies.
func (c Ceilings) tokens(a args) (int64, error) {
	n, ok := a.numeric("max_tokens")
	switch {
	case !ok || !(n >= 0 && n <= 1<<53) || n > 0 && n < 1:
		return 0, fmt.Errorf("max_tokens must be a positive number")
	case c.Tokens > 0 && n > float64(c.Tokens):
		return 0, fmt.Errorf("max_tokens: %s is more than %d, the ceiling (DEMESNE_MAX_TOKENS)", plainNumber(n), c.Tokens)
	case n == 0:
		return c.Tokens, nil
	}
	return int64(n), nil
}

func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
