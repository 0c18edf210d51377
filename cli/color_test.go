package cli

import (
	"os/exec"
	"strings"
	"testing"
)

// TestColorOnTerminal checks that colours and redrawn lines appear on a terminal only, and not if the environment asks
// for none.
func TestColorOnTerminal(t *testing.T) {
	const erase = "\x1b[J" // the rest of the screen
	for _, c := range []struct {
		env            []string
		colors, redraw bool
	}{
		{nil, true, true},
		{[]string{"NO_COLOR=1"}, false, true},
		{[]string{"TERM=dumb"}, false, false},
	} {
		a := onTerminalWith(t, c.env, "check")
		a.expect("usermod")
		exitCode(t, a.cmd)
		if got := strings.Contains(a.screen(), "\x1b["); got != c.colors {
			t.Errorf("%v: check: colours %t: %q", c.env, got, a.screen())
		}
		a = onTerminalWith(t, c.env, "pull", "python")
		a.expect("sha256:")
		exitCode(t, a.cmd)
		if got := strings.Contains(a.screen(), erase); got != c.redraw {
			t.Errorf("%v: pull: redraws %t: %q", c.env, got, a.screen())
		}
	}
	for _, args := range [][]string{{"check"}, {"inspect", "bare-1"}, {"pull", "python"}} {
		cmd := exec.Command("bare", args...)
		cmd.Dir = t.TempDir()
		cmd.Env = append(cmd.Environ(), "TERM=vt220", "NO_COLOR=", "HOME="+t.TempDir())
		both, _ := cmd.CombinedOutput()
		if strings.Contains(string(both), "\x1b") || len(both) == 0 {
			t.Errorf("%v in a pipe: %q", args, both)
		}
	}
}
