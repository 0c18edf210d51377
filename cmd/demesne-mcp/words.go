package main

import (
	"errors"
	"fmt"
	"sync"

	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/session"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/runner/ipc"
)

// explained wraps err with the hint that it carries, if it has one.
func explained(err error) error {
	var (
		e *ipc.Error
		f *events.Failure
	)
	switch {
	case errors.Is(err, session.ErrFull):
		return cli.Hinted(err, "sandbox_destroy removes a sandbox; demesne ls lists them")
	case errors.As(err, &e) && e.Code == ipc.CodeDiffers:
		return cli.Hinted(err, "omit the differing arguments to use the sandbox as it is, or set replace: true to remove it with its files and create a new one")
	case errors.As(err, &e) && e.Hint != "":
		return cli.Hinted(err, "%s", e.Hint)
	case errors.As(err, &f) && f.Hint != "":
		return cli.Hinted(err, "%s", f.Hint)
	}
	return err
}

// attached is explained for a call about a sandbox, whose error says so if there is no such sandbox.
func attached(id string, err error) error {
	var e *ipc.Error
	if errors.As(err, &e) && (e.Code == ipc.CodeNoSuchSandbox || e.Code == ipc.CodeGone) {
		err = fmt.Errorf("attach to sandbox %s: %w", id, err)
	}
	return explained(err)
}

// fetching converts image events to progress lines for tell.
func fetching(image string, tell func(string)) func(events.Event) {
	if tell == nil {
		return nil
	}
	var mu sync.Mutex
	got, total := map[oci.Digest]int64{}, map[oci.Digest]int64{}
	return func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case e.Event == events.Retry:
			tell(fmt.Sprintf("image %s: trying again in %s: %s", image, e.In, e.Why))
			return
		case e.Event != events.Layer:
			return
		case e.State == events.Unpacking || e.State == events.Done:
			tell(fmt.Sprintf("image %s: unpacking", image))
			return
		}
		got[e.Digest] = e.Bytes
		if e.Total > 0 {
			total[e.Digest] = e.Total
		}
		if e.State == events.Pulled || e.State == events.Present {
			got[e.Digest] = total[e.Digest]
		}
		tell(fmt.Sprintf("image %s: %d of %d MiB fetched", image, sum(got)>>20, sum(total)>>20))
	}
}

func sum(of map[oci.Digest]int64) (n int64) {
	for _, v := range of {
		n += v
	}
	return n
}
