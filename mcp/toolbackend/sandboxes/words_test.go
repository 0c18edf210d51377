package sandboxes

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
		err := Explained(c.err)
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
