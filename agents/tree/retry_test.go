package tree

import (
	"testing"
	"time"

	"demesne/agents"
	"demesne/runner"
)

// TestRetryWait checks each bound of the waits for rate limits.
func TestRetryWait(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := agents.Retry{Attempts: 6, Total: runner.Duration(11 * time.Hour), Base: runner.Duration(5 * time.Minute),
		Most: runner.Duration(time.Hour), Buffer: runner.Duration(30 * time.Second)}
	for name, c := range map[string]struct {
		n      int
		waited time.Duration
		reset  time.Time
		want   time.Duration
		why    string
	}{
		"first backoff":   {1, 0, time.Time{}, 5 * time.Minute, ""},
		"third backoff":   {3, 0, time.Time{}, 20 * time.Minute, ""},
		"longest":         {5, 0, time.Time{}, time.Hour, ""},
		"reset":           {1, 0, now.Add(2 * time.Hour), 2*time.Hour + 30*time.Second, ""},
		"past reset":      {1, 0, now.Add(-time.Hour), 30 * time.Second, ""},
		"attempts":        {6, 0, now, 0, "after 6 attempts"},
		"too long":        {1, 0, now.Add(12 * time.Hour), 0, "the limit ends in 12h0m30s, and waits may take 11h0m0s in all"},
		"too long in all": {2, 10 * time.Hour, now.Add(2 * time.Hour), 0, "the limit ends in 2h0m30s, and waits may take 11h0m0s in all"},
	} {
		d, why, ok := backoff(r, c.n, c.waited, now, c.reset)
		if d != c.want || why != c.why || ok != (c.why == "") {
			t.Errorf("%s: %v, %q, %v", name, d, why, ok)
		}
	}
}
