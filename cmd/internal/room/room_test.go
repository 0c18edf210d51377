package room

import (
	"errors"
	"testing"

	"demesne/runner"
)

func TestNumbers(t *testing.T) {
	for value, want := range map[string]int{"": 64, "1": 1, "5000": 5000, "0": 0, "-1": 0, "many": 0, "1.5": 0} {
		env := func(name string) string {
			if name != VarSandboxes {
				return "7"
			}
			return value
		}
		got, err := Sandboxes(env)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", value, got, err)
		}
		if slots, err := Slots(env, 3); slots != 7 || err != nil {
			t.Errorf("slots: %d, %v", slots, err)
		}
	}
}

func TestFull(t *testing.T) {
	of := func(l runner.Lifetime, s runner.State) runner.Info {
		return runner.Info{State: s, Spec: runner.Spec{Lifetime: l}}
	}
	all := []runner.Info{
		of(runner.Persistent, runner.Running), of(runner.Persistent, runner.Stopped), of(runner.Persistent, runner.Frozen),
		of(runner.OneShot, runner.Running), of(runner.Persistent, runner.Snapshot), of(runner.Persistent, runner.Ended),
	}
	if err := Full(all, 3); err != nil {
		t.Error(err)
	}
	if err := Full(all, 2); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
