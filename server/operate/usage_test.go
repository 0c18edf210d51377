package operate

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"demesne/runner"
)

// TestUsages checks that each sandbox has its turn, that samples are bounded in number and age, and which sandboxes have none.
func TestUsages(t *testing.T) {
	box := func(n int, s runner.State) runner.Info {
		return runner.Info{ID: fmt.Sprintf("id%04d", n), State: s, Spec: runner.Spec{Lifetime: runner.Persistent}}
	}
	start := time.Unix(1e9, 0)
	u := usages{of: map[string]*used{}}
	one := []runner.Info{box(0, runner.Running), box(1, runner.Stopped), box(2, runner.Paused), {ID: "one-shot", State: runner.Running}}
	for n := range 1000 { // a look each 2 s
		now := start.Add(time.Duration(n) * lookEvery)
		for _, id := range u.next(one, now) {
			u.take(id, runner.Usage{CPU: float64(n), Memory: int64(n), Processes: 1}, now)
		}
	}
	got := u.of["id0000"].samples
	last := got[len(got)-1]
	if len(got) != maxSamples || last.Memory != 998 || last.CPUs != 0.5 || last.Time.Sub(got[0].Time) > usageKept || len(u.of["id0002"].samples) != 0 || len(u.of) != 2 {
		t.Errorf("%d samples of %d sandboxes, the last is %+v", len(got), len(u.of), last)
	}
	u.take("id0000", runner.Usage{CPU: 1, Memory: 5}, start.Add(time.Hour)) // its processes began again, an hour later
	if got = u.of["id0000"].samples; len(got) != 1 || got[0].CPUs != 0 {
		t.Errorf("%+v", got)
	}
	u.take("unknown", runner.Usage{}, start)

	var many []runner.Info
	for n := range maxUsed + 100 {
		many = append(many, box(n, runner.Running))
	}
	turns := map[string]int{}
	for n := range 2 * maxUsed / maxMeasured {
		ids := u.next(many, start.Add(2*time.Hour+time.Duration(n)*lookEvery))
		if len(ids) != maxMeasured {
			t.Fatalf("%d sandboxes in one look", len(ids))
		}
		for _, id := range ids {
			turns[id]++
		}
	}
	if len(turns) != maxUsed || slices.ContainsFunc(many[:maxUsed], func(i runner.Info) bool { return turns[i.ID] != 2 }) {
		t.Errorf("%d sandboxes were measured", len(turns))
	}
	if u.next(nil, start); len(u.of) != 0 {
		t.Errorf("%d sandboxes are kept", len(u.of))
	}
}

// TestMeasure checks that a sandbox that cannot be measured hinders no other one.
func TestMeasure(t *testing.T) {
	r := newRig(t, t.TempDir(), nil)
	r.opts.Usage = func(_ context.Context, id string) (runner.Usage, error) {
		if id == "a" {
			return runner.Usage{}, context.Canceled
		}
		return runner.Usage{Memory: 7}, nil
	}
	var all []runner.Info
	for _, id := range []string{"a", "b"} {
		all = append(all, runner.Info{ID: id, State: runner.Running, Spec: runner.Spec{Lifetime: runner.Persistent}})
	}
	r.used.measure(t.Context(), all, r.opts.Usage)
	if a, b := r.Samples("a"), r.Samples("b"); len(a) != 0 || len(b) != 1 || b[0].Memory != 7 || r.Samples("c") != nil {
		t.Errorf("%+v %+v", a, b)
	}
}
