package limits

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/limits/cgroup"
)

func TestResolve(t *testing.T) {
	def := runner.Limits{Memory: 1 << 30, PIDs: 512, Disk: 2 << 30}
	for _, c := range []struct{ in, want runner.Limits }{
		{runner.Limits{}, runner.Limits{Memory: 1 << 30, CPUs: None, PIDs: 512, Disk: 2 << 30}},
		{runner.Limits{Memory: -5, CPUs: -1, PIDs: -1, Disk: -1}, runner.Limits{Memory: None, CPUs: None, PIDs: None, Disk: None}},
		{runner.Limits{Memory: 7, CPUs: 1.5, PIDs: 8, Disk: 9}, runner.Limits{Memory: 7, CPUs: 1.5, PIDs: 8, Disk: 9}},
	} {
		if got := resolve(c.in, def); got != c.want {
			t.Errorf("%+v: %+v", c.in, got)
		}
	}
	if d := Default(); d.Memory < minMemory || d.Memory > meminfo("MemTotal") || d.PIDs != 512 || d.Disk != 2<<30 {
		t.Errorf("default: %+v", d)
	}
}

func TestDefaultMemory(t *testing.T) {
	for _, c := range []struct{ total, own, want int64 }{
		{8 << 30, 0, 4 << 30},
		{8 << 30, 1 << 30, 1 << 30},
		{8 << 30, 9223372036854771712, 4 << 30}, // cgroup1's "no limit"
		{0, 0, minMemory},
	} {
		if got := defaultMemory(c.total, c.own); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestCheck(t *testing.T) {
	none := runner.Limits{Memory: None, CPUs: None, PIDs: None, Disk: None}
	for _, c := range []struct {
		change func(*runner.Limits)
		want   string
	}{
		{func(l *runner.Limits) {}, ""},
		{func(l *runner.Limits) { l.Memory = 1024 }, "set memory limit: 1024 bytes is below the 4 MiB a process needs"},
		{func(l *runner.Limits) { l.Memory = 4 << 20 }, ""},
		{func(l *runner.Limits) { l.PIDs = 3 }, "set pids limit: 3 is below the 4 a shell needs"},
		{func(l *runner.Limits) { l.Disk = 1 }, "set disk limit: 1 bytes is below the 1 MiB a run needs"},
		{func(l *runner.Limits) { l.CPUs = 0.001 }, "set cpus limit: 0.001 is below the 0.01 the kernel can count"},
		{func(l *runner.Limits) { l.CPUs = math.NaN() }, "set cpus limit: NaN is not a number of processors"},
	} {
		l := none
		c.change(&l)
		err := check(l)
		var e *ipc.Error
		switch {
		case c.want == "" && err != nil:
			t.Error(err)
		case c.want != "" && (!errors.As(err, &e) || e.Code != ipc.CodeInvalid || e.Text != c.want):
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, id := range []string{"", "a/b", "..", cgroup.Leaf, "x\x00"} {
		if _, err := bare().New(id, runner.Limits{}); err == nil {
			t.Errorf("%q taken", id)
		}
	}
	if _, err := bare().New("x", runner.Limits{Memory: 1}); err == nil {
		t.Error("a limit of one byte taken")
	}
}

func TestAddGone(t *testing.T) {
	g, err := bare().New("gone", runner.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Add(1 << 30); err == nil {
		t.Error("added a missing process")
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1023: "1023 bytes", 1 << 30: "1 GiB", 1181116006: "1.1 GiB", 1 << 50: "1024 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestFix(t *testing.T) {
	for _, c := range []struct {
		s    surroundings
		want string
	}{
		{surroundings{systemd: true, unified: true, bus: true}, "systemd-run --user"},
		{surroundings{systemd: true, unified: true}, "loginctl enable-linger"},
		{surroundings{systemd: true, bus: true}, "unified_cgroup_hierarchy"},
		{surroundings{}, "sudo demesne"},
		{surroundings{root: true}, "mount -t cgroup2"},
	} {
		if got := fix(c.s); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s", c.s, got)
		}
	}
}

func TestOpenTakesTheFirst(t *testing.T) {
	no := func(string, *discovery) ([]*hierarchy, error) { return nil, errors.New("no") }
	yes := func(string, *discovery) ([]*hierarchy, error) {
		return []*hierarchy{{version: 2, controllers: []string{"pids"}}}, nil
	}
	empty := func(string, *discovery) ([]*hierarchy, error) { return nil, nil }
	h := open("k", []mechanism{{"a", no}, {"b", empty}, {"c", yes}, {"d", no}})
	if len(h.attempts) != 3 || h.hierarchy("pids") == nil || h.hierarchy("memory") != nil {
		t.Errorf("%+v", h)
	}
	if got := h.why("memory"); got != "no memory controller in c" {
		t.Error(got)
	}
	if p := h.Probe(); p.Status != runner.Degraded || p.Detail != "c" || p.Why != "no memory, cpu controller in c" || p.Fix == "" {
		t.Errorf("%+v", p)
	}
	h = open("k", []mechanism{{"a", no}, {"b", empty}})
	if got := h.why("memory"); got != "a: no; b: it has no memory, pids or cpu controller" {
		t.Error(got)
	}
	if p := h.Probe(); p.Status != runner.Missing {
		t.Errorf("%+v", p)
	}
}

func TestAtLeast(t *testing.T) {
	for r, want := range map[string]bool{"6.1.0-13-amd64": true, "5.14.0": true, "5.13.9": false, "4.19": false, "5.15-rc1": true, "": false} {
		if atLeast(r, 5, 14) != want {
			t.Errorf("%q", r)
		}
	}
}

func TestChoose(t *testing.T) {
	var have unix.CPUSet
	for _, i := range []int{1, 3, 5, 70} {
		have.Set(i)
	}
	for _, c := range []struct{ n, start, want int }{{1, 0, 1}, {2, 3, 2}, {4, 1, 4}, {9, 7, 4}} {
		got := choose(&have, c.n, c.start)
		if got.Count() != c.want {
			t.Errorf("%+v: %d processors", c, got.Count())
		}
		for i := range 128 {
			if got.IsSet(i) && !have.IsSet(i) {
				t.Errorf("%+v: processor %d was not there", c, i)
			}
		}
	}
}

func TestProcessors(t *testing.T) {
	for text, want := range map[string]string{"50000 100000": "0.5", "150000 100000\n": "1.5", "max 100000": "", "-1 100000": "", "": ""} {
		got, err := processors(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestPause(t *testing.T) {
	for _, c := range []struct {
		used, limit int64
		cost, want  time.Duration
	}{
		{0, 16 << 30, 0, time.Second},
		{0, 2 << 30, 0, 500 * time.Millisecond},
		{2 << 30, 2 << 30, 0, 50 * time.Millisecond},
		{3 << 30, 2 << 30, 0, 50 * time.Millisecond},
		{2 << 30, 2 << 30, 10 * time.Millisecond, 200 * time.Millisecond},
		{2 << 30, 2 << 30, time.Minute, time.Second},
	} {
		if got := pause(c.used, c.limit, c.cost); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestTogether(t *testing.T) {
	now := time.Unix(1000, int64(30*time.Millisecond))
	for _, d := range []time.Duration{beat, 3 * beat, time.Second + 7} {
		got := together(now, d)
		if end := now.Add(got); end.UnixNano()%int64(beat) != 0 || got < d || got > d+beat {
			t.Errorf("%v: %v", d, got)
		}
	}
	if got := together(now, 50*time.Millisecond); got != 50*time.Millisecond {
		t.Error(got)
	}
}

func TestShort(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		left, total, start int64
		want               bool
	}{
		{10 * gib, 24 * gib, 20 * gib, false},
		{gib / 4, 24 * gib, 20 * gib, true},
		{gib / 4, 24 * gib, gib / 3, false}, // memory was short before the start
		{50 << 20, gib, gib / 2, true},
		{0, 0, 0, false}, // /proc/meminfo is missing
	} {
		if got := short(c.left, c.total, c.start); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestPressureTakesTheLargestOnce(t *testing.T) {
	p := pressure{used: map[*Group]share{}}
	small, large, now := &Group{}, &Group{}, time.Now()
	for g, n := range map[*Group]int64{small: 1, large: 2} {
		p.join(g, 0)
		p.note(g, n, 0, now)
	}
	if p.largest(small, memoryOf, now) {
		t.Error("took the small one")
	}
	if !p.largest(large, memoryOf, now) {
		t.Error("did not take the large one")
	}
	p.forget(large)
	if p.largest(small, memoryOf, now.Add(relief/2)) {
		t.Error("took the next before the first could end")
	}
	if !p.largest(small, memoryOf, now.Add(relief)) {
		t.Error("did not go on")
	}
}

// TestPressureSurvey: a sandbox is chosen only after all stale sandboxes are measured again, so a small one
// does not end because it polls first. A forgotten sandbox is not added again.
func TestPressureSurvey(t *testing.T) {
	p, g, gone, now := pressure{used: map[*Group]share{}}, &Group{}, &Group{}, time.Now()
	p.join(g, os.Getpid())
	p.survey(now)
	if s := p.used[g]; s.memory < 1<<20 || s.tasks < 2 || s.at != now {
		t.Errorf("%+v", s)
	}
	p.note(g, 1, 1, now)
	p.survey(now.Add(lookAnew))
	if s := p.used[g]; s.memory != 1 {
		t.Errorf("looked at again: %+v", s)
	}
	if p.note(gone, 1, 1, now); len(p.used) != 1 {
		t.Errorf("%+v", p.used)
	}
}

// TestPressureOfProcesses: process counts matter when the machine runs out of them and sandboxes have at least
// half.
func TestPressureOfProcesses(t *testing.T) {
	now := time.Now()
	few, many := &Group{}, &Group{}
	for _, c := range []struct {
		running, few, many int64
		want               bool
	}{
		{800, 100, 500, false}, // enough room
		{880, 100, 500, true},
		{990, 100, 300, false}, // other programs have them
	} {
		p := pressure{used: map[*Group]share{few: {tasks: c.few}, many: {tasks: c.many}}, tasks: c.running, counted: now}
		if got := p.crowded(1000, now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if p.largest(few, tasksOf, now) || !p.largest(many, tasksOf, now) {
			t.Error("did not take the one with the most processes")
		}
	}
	if machineTasks() < 2 || mostTasks() < machineTasks() {
		t.Errorf("%d processes of %d", machineTasks(), mostTasks())
	}
}

func TestUsesVerdict(t *testing.T) {
	for _, c := range []struct {
		u    uses
		want runner.Reason
	}{
		{uses{memory: 10, pids: 10, used: 10, tasks: 10}, ""},
		{uses{memory: 10, pids: None, used: 11, tasks: 1 << 30}, runner.OOM},
		{uses{memory: None, pids: 20, used: 1 << 40, tasks: 21}, runner.PIDLimit},
		{uses{memory: None, pids: None, used: 1 << 40, tasks: 1 << 30}, ""},
	} {
		if got, why := c.u.verdict(); got != c.want || (why == "") != (got == "") {
			t.Errorf("%+v: %q %q", c.u, got, why)
		}
	}
}
