package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBusy checks that a busy path is retried until it is removed, for at most a minute, and that the lock remains
// the last.
func TestBusy(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		busy  int // number of attempts that fail with EBUSY
		slept time.Duration
		errs  int
	}{{0, 0, 1}, {3, 70 * time.Millisecond, 1}, {1 << 30, reapFor, 2}} {
		var tried []string
		left, slept := c.busy, time.Duration(0)
		errs := removeAll([]string{"broken", "busy", "lock"}, func(path string) error {
			if len(tried) == 0 || tried[len(tried)-1] != path {
				tried = append(tried, path)
			}
			switch {
			case path == "broken":
				return broken
			case path == "busy" && left > 0:
				left--
				return fmt.Errorf("remove: %w", unix.EBUSY)
			}
			return nil
		}, func(d time.Duration) { slept += d })
		if len(errs) != c.errs || !errors.Is(errs[0], broken) || slept < c.slept || slept > c.slept+5*time.Second {
			t.Errorf("busy %d times: slept %v, %v", c.busy, slept, errs)
		}
		if !slices.Equal(tried, []string{"broken", "busy", "lock"}) {
			t.Errorf("busy %d times: tried %q", c.busy, tried)
		}
	}
}
