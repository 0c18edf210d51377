package operator

import (
	"fmt"
	"strconv"
	"time"

	"demesne/runner"
)

// Granted is what a caller gets who asks for more than the operator allows. 0 is not a bound.
type Granted struct {
	Limits  runner.Limits
	Timeout time.Duration // of a command
}

// Reduced returns a sentence for each limit, and for the time, that was asked for and that the operator's bounds reduce.
func (g Granted) Reduced(asked runner.Limits, timeout time.Duration) (said []string) {
	for _, row := range []struct {
		field      string
		asked, got float64
	}{
		{"limits.memory", float64(asked.Memory), float64(g.Limits.Memory)}, {"limits.cpus", asked.CPUs, g.Limits.CPUs},
		{"limits.pids", float64(asked.PIDs), float64(g.Limits.PIDs)}, {"limits.disk", float64(asked.Disk), float64(g.Limits.Disk)},
		{"timeout_ms", float64(timeout.Milliseconds()), float64(g.Timeout.Milliseconds())},
	} {
		if row.asked > 0 && row.got > 0 && row.got < row.asked {
			plain := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
			said = append(said, fmt.Sprintf("%s: reduced from %s to %s, the operator's maximum", row.field, plain(row.asked), plain(row.got)))
		}
	}
	return said
}

// Granted returns what a caller gets that asks for limits, and for a command's time.
func (p *Policy) Granted(l runner.Limits, timeout time.Duration) Granted {
	granted, _, _ := p.Grant(l)
	return Granted{Limits: granted, Timeout: p.Time(timeout)}
}
