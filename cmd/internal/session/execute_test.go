package session

import (
	"context"
	"errors"
	"testing"
	"time"

	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/client"
)

// TestTimeout checks that a command without a timeout gets 48 hours, and any other its own timeout.
func TestTimeout(t *testing.T) {
	stop := errors.New("not here")
	for asked, want := range map[time.Duration]time.Duration{0: 48 * time.Hour, time.Second: time.Second, 72 * time.Hour: 72 * time.Hour} {
		var got runner.Command
		begin := func(cmd runner.Command) (*client.Sandbox, *client.Process, error) {
			got = cmd
			return nil, nil, stop
		}
		_, err := new(Service).execute(context.Background(), begin, backend.Request{Command: "x", Timeout: asked}, backend.Callbacks{}, streams{out: newStream(16), errs: newStream(16)})
		if !errors.Is(err, stop) || got.Timeout != want {
			t.Errorf("%v: %v, %v", asked, got.Timeout, err)
		}
	}
}
