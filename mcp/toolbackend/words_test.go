package toolbackend

import (
	"errors"
	"fmt"
	"testing"

	"demesne/images/events"
	"demesne/runner/ipc"
)

func TestExplained(t *testing.T) {
	for _, c := range []struct {
		err  error
		hint string
	}{
		{nil, ""},
		{errors.New("plain"), ""},
		{fmt.Errorf("create: %w", &ipc.Error{Text: "no", Hint: "do this"}), "do this"},
		{&ipc.Error{Text: "no"}, ""},
		{fmt.Errorf("image: %w", &events.Failure{Text: "no", Hint: "log in"}), "log in"},
	} {
		err := explained(c.err)
		var h interface{ Hint() string }
		got := ""
		if errors.As(err, &h) {
			got = h.Hint()
		}
		if got != c.hint || !errors.Is(err, c.err) {
			t.Errorf("%v: hint %q, want %q", c.err, got, c.hint)
		}
	}
}

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
