package pull

import (
	"context"
	"math/rand/v2"
	"time"

	"demesne/images/events"
	"demesne/images/oci"
)

// tries is the number of attempts for a transient failure. After a 429 the library waits and
// retries itself, equally often; this package does not retry it again, and ends a long wait (asked.go).
const tries = 5

// retry calls do until it succeeds or fails permanently, at most tries times. Each attempt has a
// context that ends when the registry falls silent.
func (p *puller) retry(ctx context.Context, do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := p.once(ctx, func(ctx context.Context, _ *idle) error { return do(ctx) })
		if err == nil || try == tries || ctx.Err() != nil || !Transient(err) {
			return err
		}
		if err := p.pause(ctx, "", try, err); err != nil {
			return err
		}
	}
}

// once makes one attempt.
func (p *puller) once(ctx context.Context, do func(context.Context, *idle) error) error {
	tried, w := watch(ctx, p.Idle)
	defer w.done()
	defer asked.add(w)()
	return w.explain(tried, do(tried, w))
}

// pause waits before another attempt. The wait doubles with each attempt, plus a random part of up
// to half. Clients that were cut off together therefore do not all return at once.
func (p *puller) pause(ctx context.Context, d oci.Digest, try int, why error) error {
	wait := p.Backoff << (try - 1)
	wait += rand.N(wait/2 + 1)
	p.Report(events.Event{Event: events.Retry, Digest: d, In: wait, Why: OneLine(why)})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}
