package main

import (
	"fmt"
	"strconv"
	"time"
)

// retry bounds how often, and how long in all, a run waits for the end of a rate limit.
type retry struct {
	attempts int           // executions of the program
	total    time.Duration // of all waits
	buffer   time.Duration // added to a reset that the server named
	base     time.Duration // the first wait without such a time; each further one is twice as long
}

// longestBackoff bounds a wait for a limit without a known reset.
const longestBackoff = time.Hour

// retryVariables set the fields of retry, for tests and operators.
var retryVariables = []struct {
	name string
	set  func(*retry, int)
}{
	{"RETRY_MAX_ATTEMPTS", func(r *retry, n int) { r.attempts = n }},
	{"RETRY_MAX_TOTAL_WAIT_SECS", func(r *retry, n int) { r.total = time.Duration(n) * time.Second }},
	{"RETRY_RESET_BUFFER_SECS", func(r *retry, n int) { r.buffer = time.Duration(n) * time.Second }},
	{"RETRY_BACKOFF_BASE_SECS", func(r *retry, n int) { r.base = time.Duration(n) * time.Second }},
}

// newRetry returns the bounds of a provider, as the environment changes them.
func newRetry(attempts int, total time.Duration, getenv func(string) string) (retry, error) {
	r := retry{attempts: attempts, total: total, buffer: 30 * time.Second, base: 5 * time.Minute}
	for _, v := range retryVariables {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return r, fmt.Errorf("%s %q: not a number of at least 0", v.name, text)
		}
		v.set(&r, n)
	}
	return r, nil
}

// wait returns how long to wait before the attempt after the one numbered n, counted from 1. It is pure. waited is how
// long the earlier waits took. If ok is false, why says which bound forbids another attempt.
func (r *retry) wait(n int, waited time.Duration, now, reset time.Time) (d time.Duration, why string, ok bool) {
	if n >= r.attempts {
		return 0, fmt.Sprintf("after %d attempts", n), false
	}
	d = min(r.base<<min(n-1, 16), longestBackoff)
	if !reset.IsZero() {
		d = max(reset.Sub(now), 0) + r.buffer
	}
	if waited+d > r.total {
		return 0, fmt.Sprintf("the limit ends in %s, and waits may take %s in all", d.Round(time.Second), r.total), false
	}
	return d, "", true
}

// sleep waits until the time has passed or done is closed.
func sleep(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}
