package integration

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// tried is a report of demesne selftest --json.
type tried []struct {
	Target   string
	Error    string
	Outcomes []struct{ Case, Title, Verdict, Why string }
}

// selftest runs demesne selftest and returns its reports, and the exit code.
func (b *box) selftest(args ...string) (all tried, code int) {
	b.Helper()
	r := b.demesne(append([]string{"selftest", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		b.Fatalf("%v: %+v", err, r)
	}
	return all, r.code
}

func (all tried) count(i int, verdict string) (n int) {
	for _, o := range all[i].Outcomes {
		if o.Verdict == verdict {
			n++
		}
	}
	return n
}

// TestSelfTest checks that demesne contains every attack that demesne selftest tries (P31 and many others), and that most of
// them succeed without a sandbox.
func TestSelfTest(t *testing.T) {
	b := newBox(t)
	all, code := b.selftest("--control", "--target", "demesne")
	if len(all) != 2 || all[0].Error+all[1].Error != "" {
		t.Fatalf("%+v", all)
	}
	for i, o := range all[1].Outcomes {
		if o.Verdict == "not contained" {
			t.Errorf("%s: %s: %s; without a sandbox %s", o.Case, o.Title, o.Why, all[0].Outcomes[i].Verdict)
		}
	}
	// Some attacks need the rights of root, and fail for an ordinary user without a sandbox too.
	want := 50
	if os.Getuid() == 0 {
		want = 60
	}
	if n := all.count(0, "not contained"); n < want || code != 0 || len(all[0].Outcomes) != len(all[1].Outcomes) {
		t.Errorf("exit %d, %d succeed without a sandbox, %d of %d in one", code, n, len(all[1].Outcomes), len(all[0].Outcomes))
	}
	if n := all.count(1, "contained"); n < 100 {
		t.Errorf("%d are contained; the others were not tried: %+v", n, all[1].Outcomes)
	}
	if left := names(b.home); len(left) > 1 || len(left) == 1 && left[0] != ".demesne" {
		t.Errorf("left in the home: %q", left)
	}
}

// TestSelfTestBombs checks that a bomb that ends its sandbox is contained (P11), and that the reason says how. Without a sandbox
// none of its processes is left.
func TestSelfTestBombs(t *testing.T) {
	b := newBox(t)
	all, code := b.selftest("--case", "P11", "--target", "demesne", "--target", "env")
	if len(all) != 2 || all[0].Error+all[1].Error != "" || len(all[0].Outcomes) != 2 || code != 0 {
		t.Fatalf("exit %d: %+v", code, all)
	}
	if all[1].Outcomes[0].Verdict == "not applicable" {
		t.Skip(all[1].Outcomes[0].Why)
	}
	if why := all[0].Outcomes[0].Why; all.count(0, "contained") != 2 || !strings.Contains(why, "fork: resource temporarily unavailable after 5") {
		t.Errorf("%+v", all[0])
	}
	if o := all[1].Outcomes[1]; o.Verdict != "not contained" {
		t.Errorf("%+v", o)
	}
}

// TestSelfTestTargets checks the choice of cases and of other programs, and a target that is not a sandbox.
func TestSelfTestTargets(t *testing.T) {
	b := newBox(t)
	program(t, "env")
	all, code := b.selftest("--case", "F6", "--case", "P14", "--target", "env A=b", "--target", "no-such-program")
	if len(all) != 2 || code != 1 || len(all[0].Outcomes) != 3 || all.count(0, "not contained") != 3 || !strings.Contains(all[1].Error, "no-such-program") {
		t.Errorf("exit %d: %+v", code, all)
	}
	// No target ran: there is no table, and no count that reads as a result.
	for _, target := range []string{"no-such-program", "false"} {
		r := b.demesne("selftest", "--target", target)
		if r.code != 1 || !strings.HasPrefix(r.stdout, target+": ") || strings.Count(r.stdout, "\n") != 1 || strings.Contains(r.stdout, "contained") {
			t.Errorf("%+v", r)
		}
	}
	if r := b.demesne("selftest", "--case", "Z9"); r.code != 125 || !strings.Contains(r.stderr, `no probe of case "Z9"`) {
		t.Errorf("%+v", r)
	}
	r := b.demesne("selftest", "--markdown", "--case", "N29", "--target", "demesne", "--target", "env")
	if r.code != 0 || !strings.HasPrefix(r.stdout, "| case | attack | demesne | env |\n|---|---|---|---|\n|  | contained | 1 | 0 |\n") || !strings.HasSuffix(r.stdout, "| contained | **not contained** |\n") {
		t.Errorf("%+v", r)
	}
	if r := b.demesne("selftest", "--case", "N29"); r.code != 0 || !strings.Contains(r.stdout, "demesne: 1 contained, 0 not contained, 0 not applicable") {
		t.Errorf("%+v", r)
	}
}
