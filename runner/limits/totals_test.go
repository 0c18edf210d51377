package limits

import (
	"strings"
	"testing"

	"demesne/runner"
)

func TestFits(t *testing.T) {
	const gib = 1 << 30
	small := runner.Limits{Memory: gib, Disk: gib, PIDs: 100, CPUs: 1}
	endless := runner.Limits{Memory: None, Disk: None, PIDs: None, CPUs: None}
	for _, c := range []struct {
		name        string
		most, asked runner.Limits
		live        []runner.Limits
		want        string // in the error; empty: it fits
	}{
		{"no bound", runner.Limits{}, endless, []runner.Limits{endless}, ""},
		{"first", runner.Limits{Memory: gib}, small, nil, ""},
		{"just", runner.Limits{Memory: 3 * gib, Disk: 3 * gib, PIDs: 300, CPUs: 3}, small, []runner.Limits{small, small}, ""},
		{"memory", runner.Limits{Memory: 3*gib - 1}, small, []runner.Limits{small, small}, "memory limits together may be at most 3221225471 bytes: with 2 other sandboxes it would be 3221225472"},
		{"disk", runner.Limits{Disk: gib}, small, []runner.Limits{small}, "disk"},
		{"pids", runner.Limits{PIDs: 150}, small, []runner.Limits{small}, "pids"},
		{"cpus", runner.Limits{CPUs: 1.5}, small, []runner.Limits{small}, "cpus"},
		{"alone too much", runner.Limits{Memory: gib / 2}, small, nil, "with 0 other sandboxes"},
		{"without a limit", runner.Limits{CPUs: 100}, runner.Limits{CPUs: None}, nil, "this sandbox sets no limit"},
		{"beside one without", runner.Limits{Memory: 100 * gib}, small, []runner.Limits{endless}, "memory"},
	} {
		err := Fits(c.most, c.asked, c.live)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
