package apijobs

import (
	"errors"
	"fmt"
	"testing"

	"demesne/mcp"
	"demesne/runner/jobs"
	"demesne/session"
	"demesne/session/operator"
)

// TestUnstarted checks that a caller learns why a job was not started, if that is the caller's or the operator's doing.
func TestUnstarted(t *testing.T) {
	for _, c := range []struct{ err, kind error }{
		{fmt.Errorf("start job: %w (9)", jobs.ErrFull), session.ErrQueueFull}, {mcp.ErrNoResearch, session.ErrInvalid},
		{mcp.ResearchOff.Unasked(), session.ErrInvalid}, {operator.ErrRefused, session.ErrInvalid},
	} {
		if got := unstarted(c.err); !errors.Is(got, c.kind) || !errors.Is(got, c.err) {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if err := errors.New("a disk"); errors.Is(unstarted(err), session.ErrInvalid) {
		t.Error("a fault of this machine is the caller's")
	}
}
