package pull

import (
	"context"
	"math/rand/v2"
	"time"

	"demesne/images/events"
	"demesne/images/oci"
)

// A try that fails for a passing reason is made again so often. The library waits by itself where a
// registry says 429 and when to come back, as often; that is not done twice.
const tries = 5

// retry does what may be done again, with a context that ends when the registry falls silent.
func (p *puller) retry(ctx context.Context, do func(context.Context) error) error {
	for try := 1; ; try++ {
		err := p.once(ctx, func(ctx context.Context, _ *idle) error { return do(ctx) })
		if err == nil || try == tries || ctx.Err() != nil || !transient(err) {
			return err
		}
		if err := p.pause(ctx, "", try, err); err != nil {
			return err
		}
	}
}

// once does one try.
func (p *puller) once(ctx context.Context, do func(context.Context, *idle) error) error {
	tried, w := watch(ctx, p.Idle)
	defer w.done()
	return explain(tried, do(tried, w))
}

// pause waits before another try: twice as long each time, and up to half as long again, so that
// whoever was cut off at once does not come back at once.
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
