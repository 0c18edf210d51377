// Package need skips tests on machines that lack something. Under CI, where $CI is set, a missing need is a failure.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// That skips the test if ok is false. what names the need.
func That(t testing.TB, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf("needs %s, and CI must have it: integration/deps.sh", what)
	default:
		t.Skipf("needs %s: integration/deps.sh", what)
	}
}

// Program skips the test if no directory of $PATH has the program. name may also be a path.
func Program(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	That(t, err == nil, name)
}
