package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"demesne/rootfs/upper"
	"demesne/runner"
)

// TestSpoil checks that a run whose /out could not be settled does not count as a success, whatever its command
// returned.
func TestSpoil(t *testing.T) {
	for _, c := range []struct {
		unsettled error
		reason    runner.Reason
		code      int
	}{
		{nil, runner.Exited, 0},
		{fmt.Errorf("settle: %w: %w", upper.ErrRights, upper.ErrTooMany), runner.DiskFull, 137},
		{fmt.Errorf("settle: %w: %w", upper.ErrRights, errors.New("input/output error")), runner.Lost, 125},
	} {
		r := &runner.Result{Reason: runner.Exited}
		spoil(r, c.unsettled)
		if r.Reason != c.reason || r.ExitCode != c.code || c.unsettled != nil && !strings.Contains(r.Detail, c.unsettled.Error()) {
			t.Errorf("%v: %+v", c.unsettled, r)
		}
	}
}
