package runtools

import (
	"fmt"
	"testing"

	"demesne/runner/ipc"
)

// TestIdentified checks that an error about a removed sandbox names what the caller knows, and no key or id.
func TestIdentified(t *testing.T) {
	busy := ipc.Errorf(ipc.CodeBusy, "busy")
	for _, c := range []struct {
		err  error
		want string
	}{
		{ipc.Errorf(ipc.CodeNoSuchSandbox, "key %q: no sandbox has this key", keyOf("ci")), `identifier "ci": no sandbox has this identifier`},
		{fmt.Errorf("remove: %w", ipc.Errorf(ipc.CodeNoSuchSandbox, "find sandbox %q: no such sandbox", "0a1b2c")), `identifier "ci": no sandbox has this identifier`},
		{busy, "busy"},
	} {
		if got := identified("ci", c.err); got.Error() != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
	if identified("ci", nil) != nil {
		t.Error("an error of nothing")
	}
}
