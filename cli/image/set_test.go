package image

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"demesne/images/events"
)

// TestBusyFor checks how long a list waits for a registry that limits requests.
func TestBusyFor(t *testing.T) {
	busy := func(wait time.Duration) error {
		return fmt.Errorf("image: %w", &events.Failure{Code: events.CodeBusy, Wait: wait})
	}
	for _, c := range []struct {
		err  error
		try  int
		want time.Duration
		busy bool
	}{
		{nil, 0, 0, false},
		{errors.New("no"), 0, 0, false},
		{&events.Failure{Code: events.CodeDenied}, 0, 0, false},
		{busy(time.Minute), 0, time.Minute, true},
		{busy(time.Minute), 3, time.Minute, true},
		{busy(0), 0, busyWait, true},
		{busy(0), 2, 4 * busyWait, true},
		{busy(0), busyTries - 1, 0, false},
		{busy(2 * time.Hour), 0, 0, false},
	} {
		if wait, is := busyFor(c.err, c.try); wait != c.want || is != c.busy {
			t.Errorf("%v, try %d: %v, %t", c.err, c.try, wait, is)
		}
	}
}
