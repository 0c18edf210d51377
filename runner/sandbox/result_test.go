package sandbox

import (
	"slices"
	"syscall"
	"testing"

	"demesne/runner"
	"demesne/runner/pid1/pid1api"
)

func TestOutcome(t *testing.T) {
	exit := func(status uint32) *pid1api.Exited { return &pid1api.Exited{Status: status} }
	kill := exit(uint32(syscall.SIGKILL))
	for _, c := range []struct {
		name    string
		ex      *pid1api.Exited
		verdict runner.Reason
		code    int
		reason  runner.Reason
	}{
		{"success", exit(0), runner.Exited, 0, runner.Exited},
		{"code", exit(7 << 8), runner.Exited, 7, runner.Exited},
		{"code of a live sandbox", exit(7 << 8), "", 7, runner.Exited},
		{"signal", exit(uint32(syscall.SIGSEGV)), runner.Exited, 139, runner.Signaled},
		{"timed out", kill, runner.TimedOut, 124, runner.TimedOut},
		{"timed out, PID 1 gone first", nil, runner.TimedOut, 124, runner.TimedOut},
		{"oom is not a timeout", kill, runner.OOM, 137, runner.OOM},
		{"oom took PID 1 along", nil, runner.OOM, 137, runner.OOM},
		{"disk", kill, runner.DiskFull, 137, runner.DiskFull},
		{"PID 1 killed", nil, runner.Lost, 125, runner.Lost},
		{"ended before PID 1 was", exit(3 << 8), runner.Lost, 3, runner.Exited},
	} {
		r := outcome(c.ex, c.verdict, "why")
		if r.ExitCode != c.code || r.Reason != c.reason {
			t.Errorf("%s: got %d %s, want %d %s", c.name, r.ExitCode, r.Reason, c.code, c.reason)
		}
	}
}

func TestLastWins(t *testing.T) {
	got := lastWins([]string{"A=1", "B=2", "A=3", "C=", "B=4"})
	if want := []string{"A=3", "B=4", "C="}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
