package room

import (
	"errors"
	"testing"
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
	if err := Full(3, 3); err != nil {
		t.Error(err)
	}
	if err := Full(3, 2); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
}
