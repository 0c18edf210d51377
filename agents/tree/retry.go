package tree

import (
	"fmt"
	"time"

	"demesne/agents"
)

// backoff returns how long to wait for the end of a rate limit before the attempt after the one numbered n, counted
// from 1. It is pure. waited is how long the earlier waits took. reset is when the limit ends; zero: unknown. If ok is
// false, why says which bound forbids another attempt.
func backoff(r agents.Retry, n int, waited time.Duration, now, reset time.Time) (d time.Duration, why string, ok bool) {
	if n >= r.Attempts {
		return 0, fmt.Sprintf("after %d attempts", n), false
	}
	d = min(time.Duration(r.Base)<<min(n-1, 16), time.Duration(r.Most))
	if !reset.IsZero() {
		d = max(reset.Sub(now), 0) + time.Duration(r.Buffer)
	}
	if total := time.Duration(r.Total); waited+d > total {
		return 0, fmt.Sprintf("the limit ends in %s, and waits may take %s in all", d.Round(time.Second), total), false
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
