package operator

import (
	"fmt"
	"strconv"
	"time"

	"demesne/runner"
)

// Granted has the limits and the time of a command that a caller gets for its request.
type Granted struct {
	Limits  runner.Limits
	Timeout time.Duration // 0: there is no bound
	Reduced []Reduction
	Filled  []string // names of limits that the caller does not ask for, and gets by the bounds
}

// Reduction is a limit or a time that a caller gets less of than it asked for. Name is memory, cpus, pids, disk or timeout. Times
// are in milliseconds.
type Reduction struct {
	Name           string
	Asked, Granted float64
}

// Field returns the name of the field of an API's request.
func (r Reduction) Field() string {
	if r.Name == "timeout" {
		return "timeout_ms"
	}
	return "limits." + r.Name
}

// Warnings returns a sentence for each reduction.
func (g Granted) Warnings() (said []string) {
	for _, r := range g.Reduced {
		plain := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
		said = append(said, fmt.Sprintf("%s: reduced from %s to %s, the operator's maximum", r.Field(), plain(r.Asked), plain(r.Granted)))
	}
	return said
}
