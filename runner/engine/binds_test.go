package engine

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
		unwashed error
		reason   runner.Reason
		code     int
	}{
		{nil, runner.Exited, 0},
		{fmt.Errorf("settle: %w: %w", upper.ErrRights, upper.ErrTooMany), runner.DiskFull, 137},
		{fmt.Errorf("settle: %w: %w", upper.ErrRights, errors.New("input/output error")), runner.Lost, 125},
	} {
		r := &runner.Result{Reason: runner.Exited}
		spoil(r, c.unwashed)
		if r.Reason != c.reason || r.ExitCode != c.code || c.unwashed != nil && !strings.Contains(r.Detail, c.unwashed.Error()) {
			t.Errorf("%v: %+v", c.unwashed, r)
		}
	}
}
