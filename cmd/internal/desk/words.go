package desk

import (
	"errors"
	"fmt"
	"sync"

	"demesne/images"
	"demesne/runner/wire"
)

// hinted is an error with what to type about it.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// Hint is one line.
func (h *hinted) Hint() string { return h.hint }

// explained adds the hint that err carries, if it does.
func explained(err error) error {
	var (
		e *wire.Error
		f *images.Failure
	)
	switch {
	case errors.As(err, &e) && e.Hint != "":
		return &hinted{err, e.Hint}
	case errors.As(err, &f) && f.Hint != "":
		return &hinted{err, f.Hint}
	}
	return err
}

// fetching turns what is told of an image under way into lines for a caller who waits.
func fetching(image string, tell func(string)) func(images.Event) {
	if tell == nil {
		return nil
	}
	var mu sync.Mutex
	got, total := map[images.Digest]int64{}, map[images.Digest]int64{}
	return func(e images.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Event == images.EventRetry:
			tell(fmt.Sprintf("image %s: trying again in %s: %s", image, e.In, e.Why))
			return
		case e.Event != images.EventLayer:
			return
		case e.State == images.Unpacking || e.State == images.Done:
			tell(fmt.Sprintf("image %s: unpacking", image))
			return
		}
		got[e.Digest] = e.Bytes
		if e.Total > 0 {
			total[e.Digest] = e.Total
		}
		if e.State == images.Pulled || e.State == images.Present {
			got[e.Digest] = total[e.Digest]
		}
		tell(fmt.Sprintf("image %s: %d of %d MiB fetched", image, sum(got)>>20, sum(total)>>20))
	}
}

func sum(of map[images.Digest]int64) (n int64) {
	for _, v := range of {
		n += v
	}
	return n
}
