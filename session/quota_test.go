package session

import (
	"testing"
)

func TestNumbers(t *testing.T) {
	for value, want := range map[string]int{"": 64, "1": 1, "5000": 5000, "0": 0, "-1": 0, "many": 0, "1.5": 0} {
		env := func(name string) string {
			if name != varSandboxes {
				return "7"
			}
			return value
		}
		got, err := quota{getenv: env}.sandboxes()
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", value, got, err)
		}
		if slots, err := (quota{getenv: env}).jobs(3); slots != 7 || err != nil {
			t.Errorf("slots: %d, %v", slots, err)
		}
	}
}

func TestCopyLimits(t *testing.T) {
	for value, want := range map[string]int64{"": 0, "1": 1, "512m": 512 << 20, "2G": 2 << 30, "3t": 3 << 40, "0": -1, "-1": -1, "m": -1, "1x": -1, "9999999t": -1} {
		got, err := quota{getenv: func(name string) string {
			if name == varCopyBytes {
				return value
			}
			return "7"
		}}.copies()
		if (err != nil) != (want < 0) || err == nil && (got.Bytes != want || got.Entries != 7) {
			t.Errorf("%q: %+v, %v", value, got, err)
		}
	}
	many := quota{getenv: func(name string) string { return map[string]string{varCopyFiles: "many"}[name] }}
	if _, err := many.copies(); err == nil {
		t.Error("many files: no error")
	}
}
