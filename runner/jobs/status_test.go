package jobs

import (
	"testing"

	"demesne/runner"
)

// TestStatusWith checks that a person is shown "failed" for each command that ended with another exit code than 0, and the
// status itself otherwise.
func TestStatusWith(t *testing.T) {
	for _, c := range []struct {
		status Status
		result *runner.Result
		want   Status
	}{
		{Succeeded, &runner.Result{}, Succeeded},
		{Succeeded, &runner.Result{ExitCode: 7}, Failed},
		{Succeeded, &runner.Result{ExitCode: 137, Reason: runner.OOM}, Failed},
		{Succeeded, &runner.Result{ExitCode: 124, Reason: runner.TimedOut}, Failed},
		{Succeeded, nil, Succeeded},
		{Cancelled, &runner.Result{ExitCode: 143}, Cancelled},
		{Running, &runner.Result{ExitCode: 1}, Running},
		{Queued, nil, Queued},
		{Failed, nil, Failed},
	} {
		if got := c.status.With(c.result); got != c.want {
			t.Errorf("%s with %+v: %s, want %s", c.status, c.result, got, c.want)
		}
	}
}
