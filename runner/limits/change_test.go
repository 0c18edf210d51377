package limits

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
)

// changeIn checks changes of limits that control groups enforce. withGroups calls it for each version.
func changeIn(t *testing.T, h *Host, names map[string]string) {
	began := time.Now()
	g := groupIn(t, h, "change", runner.Limits{Memory: 256 << 20, PIDs: 100, CPUs: 0.5})
	s := start(t, g, "while :; do :; done")
	for _, step := range []struct {
		to   runner.Limits
		want map[string]string // values in the receipt
	}{
		{runner.Limits{Memory: 64 << 20}, map[string]string{"memory": "67108864", "pids": "100"}},
		{runner.Limits{Memory: 512 << 20, PIDs: 40}, map[string]string{"memory": "536870912", "pids": "40"}},
		{runner.Limits{CPUs: 0.2}, map[string]string{"cpus": "0.2", "memory": "536870912"}},
		{runner.Limits{PIDs: 100, CPUs: 0.1}, map[string]string{"pids": "100", "cpus": "0.1"}},
	} {
		if err := g.Change(step.to); err != nil {
			t.Fatalf("%+v: %v", step.to, err)
		}
		for name, want := range step.want {
			if r := receipt(g, name); r.Value != want || r.Mechanism != names[name] || r.Status != runner.Held {
				t.Errorf("%+v: %+v, not %s by %s", step.to, r, want, names[name])
			}
		}
	}
	refusesChanges(t, g)
	changed := time.Now()
	time.Sleep(time.Second) // what is measured
	s.end()
	if used := s.cmd.ProcessState.UserTime(); used > changed.Sub(began)+time.Since(changed)/2 {
		t.Errorf("used %v in %v with 0.1 processors", used, time.Since(changed))
	}
}

// refusesChanges checks that a change that cannot hold changes nothing.
func refusesChanges(t *testing.T, g *Group) {
	t.Helper()
	before := g.want
	for _, l := range []runner.Limits{
		{Memory: 1}, {PIDs: 1}, {PIDs: 1000}, {CPUs: 0.001}, {Disk: 1 << 30}, {Files: 100}, {Memory: -1}, {CPUs: -1}, {Memory: 128 << 20, PIDs: 1 << 20},
	} {
		if err := g.Change(l); err == nil || ipc.AsError(err).Code != ipc.CodeInvalid || g.want != before {
			t.Errorf("%+v: %v, and the limits are %+v", l, err, g.want)
		}
	}
}

// TestChangeWatched checks that the memory watchdog has a limit that changes, and that processors are chosen again, also for
// processes that run.
func TestChangeWatched(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := groupIn(t, bare(), "change", runner.Limits{Memory: 1 << 30, PIDs: 100})
	a := newAlarm()
	s := start(t, g, "for i in 1 2 3 4; do "+heldBomb(48)+" & done; echo up; wait")
	defer g.Watch(s.pid(), Watched{}, a.over)()
	s.line()
	refusesChanges(t, g)
	if err := g.Change(runner.Limits{PIDs: 50}); err == nil {
		t.Error("pids changed, and nothing enforces it")
	}
	for cpus, want := range map[float64]int{0.5: 1, 1024: -1} {
		if err := g.Change(runner.Limits{CPUs: cpus}); err != nil {
			t.Fatal(err)
		}
		var own, set unix.CPUSet
		unix.SchedGetaffinity(0, &own)
		if want < 0 {
			want = own.Count()
		}
		pids, _ := processes(s.pid())
		for _, pid := range pids {
			if err := unix.SchedGetaffinity(pid, &set); err == nil && set.Count() != want {
				t.Errorf("%v processors: process %d of %d has %d", cpus, pid, len(pids), set.Count())
			}
		}
	}
	if err := g.Change(runner.Limits{Memory: 2 << 30}); err != nil {
		t.Fatal(err)
	}
	for _, l := range g.Rlimits() {
		if l.Resource == unix.RLIMIT_DATA && l.Value > 1<<30 {
			t.Errorf("RLIMIT_DATA is %d: PID 1 has less, and no process can raise it", l.Value)
		}
	}
	if err := g.Change(runner.Limits{Memory: 100 << 20}); err != nil {
		t.Fatal(err)
	}
	if r := receipt(g, "memory"); r.Value != "104857600" || r.Status != runner.Degraded {
		t.Errorf("%+v", r)
	}
	a.wait(t, runner.OOM)
}
