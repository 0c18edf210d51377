package main

import (
	"testing"
	"time"
)

// TestRetryWait checks each bound of the waits for rate limits.
func TestRetryWait(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r, err := newRetry(6, 11*time.Hour, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
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
		d, why, ok := r.wait(c.n, c.waited, now, c.reset)
		if d != c.want || why != c.why || ok != (c.why == "") {
			t.Errorf("%s: %v, %q, %v", name, d, why, ok)
		}
	}
}

// TestRetryVariables checks that the environment changes the bounds, and that a wrong value is an error.
func TestRetryVariables(t *testing.T) {
	set := map[string]string{"RETRY_MAX_ATTEMPTS": "2", "RETRY_MAX_TOTAL_WAIT_SECS": "9", "RETRY_RESET_BUFFER_SECS": "0", "RETRY_BACKOFF_BASE_SECS": "1"}
	r, err := newRetry(6, time.Hour, func(name string) string { return set[name] })
	if want := (retry{2, 9 * time.Second, 0, time.Second}); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	set["RETRY_MAX_ATTEMPTS"] = "many"
	if _, err := newRetry(6, time.Hour, func(name string) string { return set[name] }); err == nil {
		t.Error("no error")
	}
}
