package sandbox

import (
	"errors"
	"testing"
	"testing/synctest"

	"demesne/runner/ipc"
)

// TestTurns checks that turns are taken in the order of the requests, and that a caller that leaves while it waits
// takes none.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(turns, 1)
		stays, leaves := make(chan struct{}), make(chan struct{})
		first, err := all.take(stays)
		if err != nil {
			t.Fatal(err)
		}
		order, failed := make(chan int, 3), make(chan error)
		dones := make(chan func(), 3)
		for n := range 3 {
			if n == 1 {
				go func() { _, err := all.take(leaves); failed <- err }()
				synctest.Wait()
			}
			go func() {
				done, err := all.take(stays)
				if err != nil {
					t.Error(err)
				}
				order <- n
				dones <- done
			}()
			synctest.Wait()
		}
		close(leaves)
		if err := <-failed; !errors.Is(err, ipc.ErrClosed) {
			t.Errorf("a caller that left: %v", err)
		}
		first()
		for n := range 3 {
			if got := <-order; got != n {
				t.Errorf("turn %d is that of request %d", n, got)
			}
			(<-dones)()
		}
		if _, err := all.take(leaves); err == nil || len(all) != 0 {
			t.Errorf("left before: %v, %d turns taken", err, len(all))
		}
	})
}
