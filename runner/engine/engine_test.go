package engine

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/pid1/pid1api"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestConfigGolden compares libcontainer's configuration for each fallback level and option with a golden file, so
// that a review sees every change.
func TestConfigGolden(t *testing.T) {
	single := api.Boot{UIDMap: []runner.IDRange{{Inside: 0, Host: 1000, Size: 1}}, GIDMap: []runner.IDRange{{Inside: 0, Host: 1000, Size: 1}}}
	multi := api.Boot{
		UIDMap: []runner.IDRange{{Inside: 0, Host: 1000, Size: 1}, {Inside: 1, Host: 100000, Size: 65535}},
		GIDMap: []runner.IDRange{{Inside: 0, Host: 1000, Size: 1}, {Inside: 1, Host: 100000, Size: 65535}},
	}
	for name, c := range map[string]struct {
		boot api.Boot
		spec runner.Spec
		rung fallback
	}{
		"single":      {boot: single},
		"multi":       {boot: multi},
		"nesting":     {boot: single, spec: runner.Spec{Nesting: true}},
		"image":       {boot: multi, spec: runner.Spec{Rootfs: &runner.Rootfs{Dir: "/r"}}},
		"proc-bound":  {boot: single, rung: fallback{procBound: true}},
		"no-hostname": {boot: single, rung: fallback{noHostname: true}},
	} {
		c.spec.Hostname = "demesne"
		got, err := json.MarshalIndent(config("id", "/root", "/dev", "/proc/1/fd/9", c.boot, c.spec, c.rung), "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".json")
		if *update {
			os.MkdirAll("testdata", 0o755)
			os.WriteFile(file, append(got, '\n'), 0o644)
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(got)+"\n" {
			t.Errorf("%s differs from the current configuration of libcontainer; read the difference, then run with -update\n%s", file, got)
		}
	}
}

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

func TestValidName(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "a": true, "web-1.x_y": true, ".": false, "-o": false, "a/b": false, "a b": false, "a\n": false, "é": false} {
		if err := validName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
