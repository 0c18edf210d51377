package limits

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// bare is a Host without any control group.
func bare() *Host { return open("bare", nil) }

func TestWatchdogMemory(t *testing.T) {
	if !ordinary(t) {
		return
	}
	h := open("watchdog", mechanisms[:1]) // nothing is prepared for an ordinary user
	// Eight processes of 48 MiB: each below its own RLIMIT_DATA, together above.
	g := group(t, h, "memory", runner.Limits{Memory: 256 << 20})
	r := receipt(g, "memory")
	if r.Status != runner.Degraded || !strings.HasPrefix(r.Mechanism, "watchdog") || r.Why == "" || r.Fix == "" {
		t.Errorf("receipt: %+v", r)
	}
	t.Logf("%+v", r)
	a := newAlarm()
	s := start(t, g, "for i in 1 2 3 4 5 6 7 8; do "+heldBomb(48)+" & done; wait")
	defer g.Watch(s.pid(), Watched{}, a.over)()
	a.wait(t, runner.OOM)
	if !g.OOMKilled() {
		t.Error("not told as an OOM kill")
	}
}

// Shared pages count once: eight forks of one large process stay below the limit.
func TestWatchdogShared(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := group(t, bare(), "shared", runner.Limits{Memory: 160 << 20})
	a := newAlarm()
	s := start(t, g, `x=$(head -c 30000000 /dev/zero | tr '\0' x); for i in 1 2 3 4 5 6 7 8; do (sleep 60; : $x) & done; echo up; wait`)
	if s.line() != "up" {
		t.Fatal("not up")
	}
	stop := g.Watch(s.pid(), Watched{}, a.over)
	time.Sleep(600 * time.Millisecond)
	stop()
	pids, _ := processes(s.pid())
	sum, _ := resident(pids)
	pss, ok := proportional(pids)
	t.Logf("resident %s, proportional %s", size(sum), size(pss))
	if !ok || pss >= sum {
		t.Errorf("proportional %d of %d", pss, sum)
	}
	select {
	case <-a.rang:
		t.Error("rang: " + a.detail)
	default:
	}
}

func TestRlimitProcesses(t *testing.T) {
	if !ordinary(t) {
		return
	}
	if !countsPerNamespace() {
		t.Skip("needs Linux 5.14")
	}
	h := bare()
	// Two at once: each has the whole of its number.
	for _, id := range []string{"one", "two"} {
		g := group(t, h, id, runner.Limits{PIDs: 40})
		if r := receipt(g, "pids"); r.Mechanism != "RLIMIT_NPROC" || r.Value != "40" || r.Status != runner.Held {
			t.Errorf("receipt: %+v", r)
		}
		countBomb(t, g, 40)
	}
}

func TestRlimitData(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := group(t, bare(), "data", runner.Limits{Memory: 128 << 20})
	s := start(t, g, bomb(512)+"; echo $?")
	if got := s.line(); got != "1" {
		t.Errorf("one process of 512 MiB under 128 MiB: %q", got)
	}
}

func TestAffinity(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := group(t, bare(), "cpus", runner.Limits{CPUs: 0.5})
	s := start(t, g, "sleep 60")
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(s.pid(), &set); err != nil || set.Count() != 1 {
		t.Errorf("%d processors, %v", set.Count(), err)
	}
	if r := receipt(g, "cpus"); r.Status != runner.Degraded || r.Value != "1" || r.Mechanism != "sched_setaffinity" {
		t.Errorf("receipt: %+v", r)
	}
}

// What a sandbox writes counts, what was there does not, and a file without a name
// does.
func TestWatchdogDisk(t *testing.T) {
	if !ordinary(t) {
		return
	}
	for _, c := range []struct {
		name, script string
		over         bool
	}{
		{"below", `head -c 1500000 /dev/zero > "$1/a"; sleep 60`, false},
		{"files", `for i in 1 2 3 4 5; do head -c 1000000 /dev/zero > "$1/$i"; done; sleep 60`, true},
		{"nameless", `exec 7> "$1/x"; exec 8> "$1/y"; rm "$1/x" "$1/y"; head -c 3000000 /dev/zero >&7; head -c 3000000 /dev/zero >&8; sleep 60`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("none", dir, "tmpfs", 0, "size=600m"); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			if err := os.WriteFile(filepath.Join(dir, "before"), make([]byte, 8<<20), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			g := group(t, bare(), "disk", runner.Limits{Disk: 4 << 20})
			a := newAlarm()
			s := start(t, g, "sleep 0.3;"+c.script, dir)
			stop := g.Watch(s.pid(), Watched{Dirs: []Written{{Dir: f}}}, a.over)
			if c.over {
				a.wait(t, runner.DiskFull)
				stop()
				return
			}
			time.Sleep(1500 * time.Millisecond)
			stop()
			if a.reason != "" {
				t.Error(a.detail)
			}
		})
	}
}

// What others write is settled as theirs; what is nowhere to be found is the sandbox's, even then.
func TestWatchdogDiskOthers(t *testing.T) {
	if !ordinary(t) {
		return
	}
	root := t.TempDir()
	if err := unix.Mount("none", root, "tmpfs", 0, "size=600m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	if err := os.Mkdir(root+"/out", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	g := group(t, bare(), "others", runner.Limits{Disk: 4 << 20})
	w := &watch{g: g, quit: make(chan struct{})}
	d := w.disks([]Written{{Dir: dir}})[0]
	defer d.dir.Close()
	d.baseline(w)
	limit := bound(g.want.Disk)
	look := func() string {
		time.Sleep(20 * time.Millisecond) // files are dated by ticks
		now, err := spaceOf(d.dir)
		if err != nil {
			t.Fatal(err)
		}
		d.look(w, os.Getpid(), now, limit)
		return d.verdict(now, limit)
	}
	write := func(n int) error {
		return os.WriteFile(root+"/other"+strconv.Itoa(n), make([]byte, n<<20), 0o644)
	}
	for n := range 5 {
		if err := write(n * 10); err != nil {
			t.Fatal(err)
		}
		for range innocent + 1 {
			if why := look(); why != "" {
				t.Fatalf("others wrote: %s", why)
			}
		}
	}
	if d.others.bytes < 100<<20 || d.doubt != 0 {
		t.Errorf("settled %+v", d.others)
	}
	fd, err := unix.Open(root+"/out", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, make([]byte, 6<<20)); err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if why := look(); !strings.Contains(why, "written to /out of 4 MiB (") {
		t.Errorf("open and without a name: %q", why)
	}
	unix.Close(fd)
	why := ""
	for range certain {
		why = look()
	}
	if !strings.Contains(why, "files that are mapped") {
		t.Errorf("mapped: %q, %+v", why, d)
	}
}

// What looking after idle sandboxes costs a second, for ten of them. Run it as an
// ordinary user; it needs no namespace.
func BenchmarkIdle(b *testing.B) {
	dir, err := os.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	h := bare()
	for i := range 10 {
		g, err := h.New("idle"+strconv.Itoa(i), runner.Limits{Memory: 4 << 30})
		if err != nil {
			b.Fatal(err)
		}
		c := exec.Command("sleep", "60")
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { c.Process.Kill(); c.Wait(); g.Close() }()
		g.Watch(c.Process.Pid, Watched{Dirs: []Written{{Dir: dir}}, PIDs: true}, func(r runner.Reason, d string) { b.Error(r, d) })
	}
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	for b.Loop() {
		time.Sleep(time.Second)
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/s")
}
