package integration

import (
	"strings"
	"testing"
)

// TestExitCodes checks that the exit codes are as in env(1), timeout(1) and the shell.
func TestExitCodes(t *testing.T) {
	b := newBox(t)
	plain := b.file("plain", "not a program\n", 0o644)
	garbage := b.file("garbage", "\x00\x01\x02\x03", 0o755)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"success", []string{"--", "true"}, 0, ""},
		{"its own", []string{"--", "sh", "-c", "exit 42"}, 42, ""},
		{"255", []string{"--", "sh", "-c", "exit 255"}, 255, ""},
		{"its own 125", []string{"--", "sh", "-c", "exit 125"}, 125, ""},
		{"timed out", []string{"--timeout", "300ms", "--", "sleep", "60"}, 124, "timed out"},
		{"timed out, ignoring TERM", []string{"--timeout", "300ms", "--", "sh", "-c", "trap '' TERM INT; sleep 60"}, 124, "timed out"},
		{"could not", []string{"--image", "nosuch", "--", "true"}, 125, "nosuch"},
		{"not executable", []string{"--in", plain, "--", "/in/plain"}, 126, "/in/plain"},
		{"directory", []string{"--", "/usr"}, 126, "/usr"},
		{"not found", []string{"--", "nosuch-program"}, 127, "nosuch-program"},
		{"not found, path", []string{"--", "/no/such"}, 127, "/no/such"},
		{"not a program", []string{"--in", garbage, "--", "/in/garbage"}, 126, "/in/garbage"},
		{"TERM", []string{"--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		{"KILL", []string{"--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{"SEGV", []string{"--", "sh", "-c", "kill -SEGV $$"}, 139, ""},
		{"real-time signal", []string{"--", "sh", "-c", "kill -40 $$"}, 168, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.demesne(append([]string{"run"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit %d, want %d; stderr %q, want %q in it", r.code, c.code, r.stderr, c.says)
			}
			if c.says == "" && r.stderr != "" {
				t.Errorf("stderr: %q", r.stderr)
			}
		})
	}
}

// TestExitReasons checks that the result names the reason why a command ended, so that clients need not guess it
// from the code.
func TestExitReasons(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct {
		reason string
		flags  []string
		script string
	}{
		{"exited", nil, "exit 124"},
		{"exited", nil, "exit 137"},
		{"signaled", nil, "kill -KILL $$"},
		{"timed-out", []string{"--timeout", "300ms"}, "sleep 60"},
	} {
		if p, r := b.report(c.flags, "sh", "-c", c.script); p.Reason != c.reason || p.ExitCode != r.code {
			t.Errorf("%s: reason %q, want %q; exit_code %d, exit %d", c.script, p.Reason, c.reason, p.ExitCode, r.code)
		}
	}
}
