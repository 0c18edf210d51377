package push

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"demesne/images/events"
	"demesne/images/oci"
	"demesne/images/pull"
)

const (
	// tries is the number of attempts for a transient failure.
	tries = 5
	// longPause is the longest wait that a registry may ask for.
	longPause = 20 * time.Second
)

// retry calls do until it succeeds or fails permanently, at most tries times. Each attempt without a body of its own has
// the time of Idle for an answer, as attempts of uploads restart their own timer.
func (p *pusher) retry(ctx context.Context, d oci.Digest, do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := do(ctx)
		wait, again := p.again(err, try)
		if !again || ctx.Err() != nil {
			return err
		}
		p.Report(events.Event{Event: events.Retry, Digest: d, In: wait, Why: pull.OneLine(err)})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// again reports whether another attempt may succeed, and after which wait.
func (p *pusher) again(err error, try int) (time.Duration, bool) {
	if err == nil || try == tries {
		return 0, false
	}
	wait := p.Backoff << (try - 1)
	wait += rand.N(wait/2 + 1)
	var status *statusError
	if errors.As(err, &status) && status.StatusCode == http.StatusTooManyRequests {
		return max(wait, status.wait), status.wait <= longPause
	}
	if errors.As(err, &status) && status.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return wait, true // the registry lost a part: ask where to continue
	}
	return wait, pull.Transient(err) || errors.Is(err, errStale)
}
