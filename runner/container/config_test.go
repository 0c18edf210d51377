package container

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
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

// TestFallback checks which failures of a start weaken the next one: refusals of a step that can be left out.
func TestFallback(t *testing.T) {
	const proc = `unable to start container process: error during container init: error mounting "proc" to rootfs at "/proc": mount src=proc, dst=/proc: `
	none, bound, both := fallback{}, fallback{procBound: true}, fallback{procBound: true, noHostname: true}
	for _, c := range []struct {
		text       string
		from, next fallback
		ok         bool
	}{
		{proc + "operation not permitted", none, bound, true},
		{proc + "permission denied", none, bound, true},
		{"error during container init: sethostname: operation not permitted", bound, both, true},
		{proc + "operation not permitted", bound, bound, false},
		{proc + "too many open files", none, bound, false},
		{proc + "cannot allocate memory", none, bound, false},
		{"unable to start container process: EOF", none, none, false},
		{`error mounting "/sys" to rootfs at "/sys": operation not permitted`, none, none, false},
	} {
		if next, ok := c.from.after(errors.New(c.text)); next != c.next || ok != c.ok {
			t.Errorf("%+v after %q: %+v, %v", c.from, c.text, next, ok)
		}
	}
}
