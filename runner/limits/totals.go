package limits

import (
	"fmt"
	"strconv"

	"demesne/runner"
	"demesne/runner/ipc"
)

// total is a limit whose sum over the live sandboxes can be bounded.
type total struct {
	name, flag, unit string
	of               func(runner.Limits) float64 // below zero: no limit
}

var totals = []total{
	{"memory", "--memory", "bytes", func(l runner.Limits) float64 { return float64(l.Memory) }},
	{"disk", "--disk", "bytes", func(l runner.Limits) float64 { return float64(l.Disk) }},
	{"pids", "--pids", "processes", func(l runner.Limits) float64 { return float64(l.PIDs) }},
	{"cpus", "--cpus", "processors", func(l runner.Limits) float64 { return l.CPUs }},
}

// Fits rejects a sandbox if its limits and the live sandboxes' together exceed most. A zero in most is not a bound.
// A live sandbox without a limit counts with the whole bound; a new one without a limit is rejected.
func Fits(most, asked runner.Limits, live []runner.Limits) error {
	for _, t := range totals {
		bound := t.of(most)
		if bound <= 0 {
			continue
		}
		if t.of(asked) == None {
			return tooMuch(t, bound, "this sandbox sets no limit")
		}
		sum := t.of(asked)
		for _, l := range live {
			if n := t.of(l); n == None {
				sum += bound
			} else {
				sum += n
			}
		}
		if sum > bound {
			return tooMuch(t, bound, fmt.Sprintf("with %d other sandboxes it would be %s", len(live), number(sum)))
		}
	}
	return nil
}

func tooMuch(t total, bound float64, why string) error {
	err := ipc.Errorf(ipc.CodeTooMuch, "create sandbox: all %s limits together may be at most %s %s: %s", t.name, number(bound), t.unit, why)
	err.Hint = "a lower " + t.flag + ", or remove a sandbox: demesne ls, then demesne rm ID"
	return err
}

func number(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
