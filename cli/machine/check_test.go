package machine

import (
	"errors"
	"strings"
	"testing"

	"demesne/runner"
)

// TestVerdict checks the end of demesne check: the level, and what lacks for the next.
func TestVerdict(t *testing.T) {
	limits := []runner.LimitReceipt{{Name: "cpus", Status: runner.Off}, {Name: "disk", Status: runner.Degraded, Why: "counted", Fix: "mount it"}}
	for want, r := range map[string]*runner.Receipt{
		"level full here: good for untrusted code\n":                                                            {Level: runner.LevelFull, Layers: []runner.Layer{{Name: "proc", Status: runner.Held}}},
		"good for untrusted code; limits below are enforced late\n    disk limit: counted\n    fix: mount it\n": {Level: runner.LevelDegraded, Limits: limits},
		"weaker against hostile code: proc, sys\n    proc: degraded\n    sys: missing\n":                        {Level: runner.LevelDegraded, Layers: []runner.Layer{{Name: "proc", Status: runner.Degraded}, {Name: "sys", Status: runner.Missing, Fix: "demesne check  # names"}}},
		"level minimal here: not good for hostile code":                                                         {Level: runner.LevelMinimal},
	} {
		if got := verdict(r, nil); !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if got := verdict(nil, errors.New("no namespace\nfor you")); strings.Count(got, "\n") != 2 || !strings.Contains(got, "demesne run fails here: no namespace") {
		t.Errorf("%q", got)
	}
}
