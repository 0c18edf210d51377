package headless

import (
	"testing"

	"demesne/runner"
)

// TestCheckNames checks that no input takes a name that the sandbox of an agent needs.
func TestCheckNames(t *testing.T) {
	for name, ok := range map[string]bool{"out": true, "out-2": true, ".agents": true, "previous": true, ".agent": false, "previous-jobs": false} {
		if err := checkNames([]runner.Input{{Path: "/x", Name: "first"}, {Path: "/y", Name: name}}); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
