package limits

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
)

func TestCgroup1(t *testing.T) {
	requireRoot(t)
	if b, _ := os.ReadFile("/proc/self/cgroup"); !strings.Contains(string(b), "memory:") {
		t.Skip("no version 1 hierarchy with memory")
	}
	if key, in := asRunner(t, 100000, 65536, true); in {
		withGroups(t, key, mechanisms[0].name, map[string]string{
			"memory": "cgroup1 memory.limit_in_bytes",
			"pids":   "cgroup1 pids.max",
			"cpus":   "cgroup1 cpu.cfs_quota_us",
		})
	}
}

var cgroup2Mechanisms = map[string]string{
	"memory": "cgroup2 memory.max",
	"pids":   "cgroup2 pids.max",
	"cpus":   "cgroup2 cpu.max",
}

// requireUnified skips the test where version 2 lacks the controllers. Machines with systemd have them;
// elsewhere run the test in a systemd machine (CONTRIBUTING.md).
func requireUnified(t *testing.T) {
	t.Helper()
	if !lookAround().unified {
		t.Skip("no cgroup2 at /sys/fs/cgroup")
	}
}

func TestCgroup2Prepared(t *testing.T) {
	requireRoot(t)
	requireUnified(t)
	if key, in := asRunner(t, 100000, 65536, true); in {
		withGroups(t, key, mechanisms[0].name, cgroup2Mechanisms)
	}
}

// TestCgroup2Own tests the runner's own delegated group. Run it in `systemd-run --user --scope -p Delegate=yes`.
func TestCgroup2Own(t *testing.T) {
	requireUnified(t)
	if os.Getenv(keyVar) == "" && !delegated(t) {
		t.Skip("not in a group of its own")
	}
	if key, in := asRunner(t, os.Geteuid(), 1, false); in {
		withGroups(t, key, mechanisms[1].name, cgroup2Mechanisms)
	}
}

// delegated reports whether the test's own group belongs to the user.
func delegated(t *testing.T) bool {
	t.Helper()
	self, err := cgroup.Self()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := cgroup.Find(self, "")
	d, err := cgroup.Own(m)
	if err != nil {
		return false
	}
	defer d.Close()
	return d.Owned() && os.Geteuid() != 0
}

func TestCgroup2Scope(t *testing.T) {
	requireUnified(t)
	if !hasBus() || os.Geteuid() == 0 && os.Getenv(keyVar) == "" {
		t.Skip("needs an ordinary user's systemd")
	}
	if os.Getenv(keyVar) == "" && delegated(t) {
		t.Skip("in a group of its own already")
	}
	if key, in := asRunner(t, os.Geteuid(), 1, false); in {
		withGroups(t, key, mechanisms[2].name, cgroup2Mechanisms)
	}
}

// withGroups tests the limits of a Host that should have found mechanism.
func withGroups(t *testing.T, key, mechanism string, names map[string]string) {
	began := time.Now()
	h := Open(key, true)
	t.Logf("opened in %v", time.Since(began))
	// As in the runner: open directories remain usable after the path is covered.
	if err := unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if p := h.Probe(); p.Status != runner.Held || p.Detail != mechanism {
		t.Fatalf("probe: %+v", p)
	}
	t.Run("receipt", func(t *testing.T) {
		began := time.Now()
		g := groupIn(t, h, "receipt", runner.Limits{Memory: 64 << 20, PIDs: 100, CPUs: 0.5})
		made := time.Since(began)
		start(t, g, "sleep 60")
		began = time.Now()
		r := g.Receipt(Watched{})
		t.Logf("made in %v, told in %v: %+v", made, time.Since(began), r)
		for name, want := range map[string]string{"memory": "67108864", "pids": "100", "cpus": "0.5"} {
			r := receipt(g, name)
			if r.Value != want || r.Mechanism != names[name] || r.Status != runner.Held {
				t.Errorf("%+v, want %v by %s", r, want, names[name])
			}
		}
		// Memory with swap has the same limit, where the kernel accounts for swap.
		file, none := "memory.swap.max", "0"
		if h.hierarchy("memory").version == 1 {
			file, none = "memory.memsw.limit_in_bytes", "67108864"
		}
		for _, s := range g.seats {
			if got, err := s.outer.Read(file); s.place == h.hierarchy("memory") && got != none && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is %q, %v", file, got, err)
			}
		}
	})
	t.Run("fork bomb", func(t *testing.T) {
		countBomb(t, groupIn(t, h, "forks", runner.Limits{PIDs: 40}), 40)
	})
	t.Run("memory bomb", func(t *testing.T) { memoryBomb(t, h) })
	t.Run("processors", func(t *testing.T) {
		g := groupIn(t, h, "cpu", runner.Limits{CPUs: 0.2})
		began := time.Now()
		s := start(t, g, "while :; do :; done")
		time.Sleep(1500 * time.Millisecond) // what is measured
		s.end()
		if took, used := time.Since(began), s.cmd.ProcessState.UserTime()+s.cmd.ProcessState.SystemTime(); used > took/2 {
			t.Errorf("used %v of %v with 0.2 processors", used, took)
		}
	})
	t.Run("still", func(t *testing.T) { stillIn(t, h) })
	t.Run("change", func(t *testing.T) { changeIn(t, h, names) })
	t.Run("many", func(t *testing.T) { many(t, h) })
	t.Run("close ends stragglers", func(t *testing.T) {
		g := groupIn(t, h, "stragglers", runner.Limits{})
		s := start(t, g, "sleep 60 & sleep 60 & echo up; wait")
		s.line()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		s.cmd.Wait()
	})
	t.Run("kill", func(t *testing.T) {
		if h.hierarchy("memory").version != 2 {
			t.Skip("version 1 has no cgroup.kill")
		}
		g := groupIn(t, h, "kill", runner.Limits{})
		s := start(t, g, "trap '' TERM; sleep 60 & echo up; wait")
		s.line()
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		s.cmd.Wait()
	})
}

// memoryBomb: version 2 kills the whole sandbox, version 1 one process, and the watch reports it.
func memoryBomb(t *testing.T, h *Host) {
	g := groupIn(t, h, "memory", runner.Limits{Memory: 64 << 20})
	a := newAlarm()
	s := start(t, g, bomb(256)+"; echo $?; sleep 60")
	defer g.Watch(s.pid(), Watched{}, a.over)()
	got := s.line()
	if h.hierarchy("memory").version == 1 {
		if got != "137" {
			t.Errorf("bomb ended with %q", got)
		}
		a.wait(t, runner.OOM)
	} else if got != "" {
		t.Errorf("PID 1 outlived the kill and said %q", got)
	}
	if !g.OOMKilled() {
		t.Error("not told as an OOM kill")
	}
	s.end()
	if err := g.Close(); err != nil || !g.OOMKilled() {
		t.Error("forgotten after Close", err)
	}
}

// many makes and removes 30 sandboxes at once.
func many(t *testing.T, h *Host) {
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			g, err := h.New(fmt.Sprintf("many%d", i), runner.Limits{Memory: 64 << 20})
			if err != nil {
				t.Error(err)
				return
			}
			c := exec.Command("sleep", "0.05")
			if err := c.Start(); err != nil {
				t.Error(err)
				return
			}
			if err := g.Add(c.Process.Pid); err != nil {
				t.Error(err)
			}
			stop := g.Watch(c.Process.Pid, Watched{}, func(r runner.Reason, s string) { t.Error(r, s) })
			g.Receipt(Watched{})
			c.Wait()
			stop()
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
