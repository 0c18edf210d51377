package limits

import (
	"fmt"
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

// bare returns a Host without control groups.
func bare() *Host { return open("bare", nil) }

func TestWatchdogMemory(t *testing.T) {
	if !ordinary(t) {
		return
	}
	h := open("watchdog", mechanisms[:1]) // an ordinary user has no prepared groups
	// Eight processes of 48 MiB: each below its own RLIMIT_DATA, together above.
	g := groupIn(t, h, "memory", runner.Limits{Memory: 256 << 20})
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

// TestWatchdogShared checks that shared pages count once: eight forks of one large process remain below the limit.
func TestWatchdogShared(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := groupIn(t, bare(), "shared", runner.Limits{Memory: 160 << 20})
	a := newAlarm()
	s := start(t, g, `x=$(head -c 30000000 /dev/zero | tr '\0' x); for i in 1 2 3 4 5 6 7 8; do (sleep 60; : $x) & done; echo up; wait`)
	if s.line() != "up" {
		t.Fatal("not up")
	}
	stop := g.Watch(s.pid(), Watched{}, a.over)
	time.Sleep(600 * time.Millisecond) // what is tested: several looks find nothing
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
	// Two sandboxes at once: each may use its full number of processes.
	for _, id := range []string{"one", "two"} {
		g := groupIn(t, h, id, runner.Limits{PIDs: 40})
		if r := receipt(g, "pids"); r.Mechanism != "RLIMIT_NPROC" || r.Value != "40" || r.Status != runner.Held {
			t.Errorf("receipt: %+v", r)
		}
		countBomb(t, g, 40)
	}
}

// TestWatchdogRoot: the kernel's uid 0 ignores RLIMIT_NPROC also as root of a user namespace. So the watchdog counts,
// and the receipt does not say held.
func TestWatchdogRoot(t *testing.T) {
	requireRoot(t)
	if _, in := asRunner(t, 0, 1, false); !in {
		return
	}
	g := groupIn(t, bare(), "root", runner.Limits{PIDs: 40})
	if r := receipt(g, "pids"); r.Status != runner.Degraded || !strings.Contains(r.Mechanism, "watchdog") || !strings.Contains(r.Why, "exempts its uid 0") {
		t.Errorf("receipt: %+v", r)
	}
	a := newAlarm()
	s := start(t, g, `"$1" forks; sleep 60`, self(t))
	defer g.Watch(s.pid(), Watched{}, a.over)()
	a.wait(t, runner.PIDLimit)
}

// TestRootIsMapped: the kernel's uid 0 may be any id of the sandbox, or none.
func TestRootIsMapped(t *testing.T) {
	for _, c := range []struct {
		name string
		root uint32 // owner of /proc/sys/kernel
		ids  string
		want bool
	}{
		{"rootful container, one id", 0, "0 0 1\n", true},
		{"an ordinary user, one id", overflow, "0 1000 1\n", false},
		{"subordinate ids", overflow, "0 1000 1\n1 100000 65535\n", false},
		{"root's own range", overflow, "0 1879048192 65536\n", false},
		{"a container that is root of a user's namespace", overflow, "0 0 1\n", false},
		{"a part of the ids", 1, "0 1000 1\n1 0 1\n", true},
		{"a later part of the ids", 7000, "0 1000 1\n1 100000 4000\n6000 0 3000\n", true},
		{"between the parts", 5000, "0 1000 1\n1 100000 4000\n6000 0 3000\n", false},
		{"the overflow id itself", overflow, "0 1000 1\n65534 0 1\n", true},
		{"no namespace", 0, "0 0 4294967295\n", true},
		{"not a map", overflow, "?\n", true},
	} {
		if got := rootIsMapped(c.root, c.ids); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRlimitData(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := groupIn(t, bare(), "data", runner.Limits{Memory: 128 << 20})
	s := start(t, g, bomb(512)+"; echo $?")
	if got := s.line(); got != "1" {
		t.Errorf("one process of 512 MiB under 128 MiB: %q", got)
	}
}

func TestAffinity(t *testing.T) {
	if !ordinary(t) {
		return
	}
	g := groupIn(t, bare(), "cpus", runner.Limits{CPUs: 0.5})
	s := start(t, g, "sleep 60")
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(s.pid(), &set); err != nil || set.Count() != 1 {
		t.Errorf("%d processors, %v", set.Count(), err)
	}
	if r := receipt(g, "cpus"); r.Status != runner.Degraded || r.Value != "1" || r.Mechanism != "sched_setaffinity" {
		t.Errorf("receipt: %+v", r)
	}
}

// TestWatchdogDisk: the sandbox's writes count, files without a name included; files that existed before do
// not.
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
			g := groupIn(t, bare(), "disk", runner.Limits{Disk: 4 << 20})
			a := newAlarm()
			s := start(t, g, "sleep 0.3;"+c.script, dir)
			stop := g.Watch(s.pid(), Watched{Dirs: []Written{{Dir: f}}}, a.over)
			if c.over {
				a.wait(t, runner.DiskFull)
				stop()
				return
			}
			time.Sleep(1500 * time.Millisecond) // what is tested: several looks find nothing
			stop()
			if a.reason != "" {
				t.Error(a.detail)
			}
		})
	}
}

// watched is a directory on a tmpfs of 600 MiB, with a watch that measures when a test asks.
type watched struct {
	t     *testing.T
	root  string
	w     *watch
	d     *disk
	limit tally
}

func newWatched(t *testing.T, limit int64) *watched {
	root := t.TempDir()
	if err := unix.Mount("none", root, "tmpfs", 0, "size=600m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	if err := os.Mkdir(root+"/out", 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(root + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	g := groupIn(t, bare(), "watched", runner.Limits{Disk: limit})
	w := &watch{g: g, quit: make(chan struct{})}
	d := w.disks([]Written{{Dir: dir}})[0]
	t.Cleanup(func() { d.dir.Close() })
	base := &look{of: d, first: true, now: d.start}
	base.take(nil)
	d.settle(w, base)
	return &watched{t, root, w, d, bound(g.want.Disk)}
}

func (o *watched) look() string {
	time.Sleep(20 * time.Millisecond) // file timestamps advance in kernel ticks
	now, err := spaceOf(o.d.dir)
	if err != nil {
		o.t.Fatal(err)
	}
	l := o.d.look(os.Getpid(), now, o.limit)
	l.take(nil)
	o.d.settle(o.w, l)
	return o.d.verdict(now, o.limit)
}

// others writes n MiB beside the directory and requires that they do not count as the sandbox's.
func (o *watched) others(n int) {
	o.t.Helper()
	if err := os.WriteFile(o.root+"/other"+strconv.Itoa(n), make([]byte, n<<20), 0o644); err != nil {
		o.t.Fatal(err)
	}
	for range innocent + 1 {
		if why := o.look(); why != "" {
			o.t.Fatalf("others wrote: %s", why)
		}
	}
}

// nameless writes n MiB to a file without a name and maps it.
func (o *watched) nameless(n int) (fd int) {
	fd, err := unix.Open(o.root+"/out", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := unix.Write(fd, make([]byte, n<<20)); err != nil {
		o.t.Fatal(err)
	}
	mem, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { unix.Munmap(mem) })
	return fd
}

// TestWatchdogDiskOthers: writes of other programs are attributed to them; space that no search finds still
// counts as the sandbox's.
func TestWatchdogDiskOthers(t *testing.T) {
	if !ordinary(t) {
		return
	}
	o := newWatched(t, 4<<20)
	for n := range 5 {
		o.others(n * 10)
	}
	if o.d.others.bytes < 100<<20 || o.d.doubt != 0 {
		t.Errorf("settled %+v", o.d.others)
	}
	fd := o.nameless(6)
	if why := o.look(); !strings.Contains(why, "written to /out of 4 MiB (") {
		t.Errorf("open and without a name: %q", why)
	}
	unix.Close(fd)
	why := ""
	for range certain {
		why = o.look()
	}
	if !strings.Contains(why, "mapped files") {
		t.Errorf("mapped: %q, %+v", why, o.d)
	}
}

// TestSearchBounded: what exceeds the bounds of a search is a place that may hide files, as is a mount namespace of
// a process's own. A search that must stop does so.
func TestSearchBounded(t *testing.T) {
	if !ordinary(t) {
		return
	}
	o := newWatched(t, 4<<20)
	look := func() *search { return o.d.unnamed(os.Getpid(), nil) }
	if s := look(); s.where != "" || s.left < maxExamined/2 {
		t.Errorf("at first: %q, %d left", s.where, s.left)
	}
	f, err := os.Create(o.root + "/mapped")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range maxMappings {
		mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
	}
	if s := look(); !strings.Contains(s.where, "mappings of files") {
		t.Errorf("many mappings: %q", s.where)
	}
	s := &search{left: 2}
	if !s.spend(2) || s.spend(1) || !strings.Contains(s.where, "more than") {
		t.Errorf("beyond the bound: %q", s.where)
	}
	quit := make(chan struct{})
	close(quit)
	if s := o.d.unnamed(os.Getpid(), quit); s.left < maxExamined-1000 {
		t.Errorf("after the end: %d left", s.left)
	}
}

// TestSearchMounts: a process with mounts of its own may keep files there.
func TestSearchMounts(t *testing.T) {
	if !ordinary(t) {
		return
	}
	o := newWatched(t, 4<<20)
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { c.Process.Kill(); c.Wait() }()
	if s := o.d.unnamed(os.Getpid(), nil); !strings.Contains(s.where, "mount namespaces of processes") {
		t.Errorf("a process: %q", s.where)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", c.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.Process.Kill()
	c.Wait()
	if s := o.d.unnamed(os.Getpid(), nil); !strings.Contains(s.where, "mount namespaces of descriptors") {
		t.Errorf("a descriptor: %q", s.where)
	}
}

// TestWatchdogDiskFull: on a nearly full file system, the sandbox that filled it with hidden files ends, even
// without a limit. A sandbox that hides nothing does not end.
func TestWatchdogDiskFull(t *testing.T) {
	if !ordinary(t) {
		return
	}
	o := newWatched(t, None)
	o.others(400)
	unix.Close(o.nameless(60))
	if why := o.look(); why != "" {
		t.Errorf("there is room: %s", why)
	}
	unix.Close(o.nameless(100))
	why := ""
	for range certain {
		why = o.look()
	}
	if !strings.Contains(why, "the file system of /out has") {
		t.Errorf("full: %q, %+v", why, o.d)
	}
	o = newWatched(t, None)
	o.others(590)
}

// BenchmarkIdle measures the cost of watching ten idle sandboxes for a second. Run it as an ordinary user; it
// needs no namespace.
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
		time.Sleep(time.Second) // what is measured
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/s")
}

// TestDiskReceipt: the receipt says enforced where the file system is no larger than the limit, and counted
// elsewhere.
func TestDiskReceipt(t *testing.T) {
	if !ordinary(t) {
		return
	}
	small := t.TempDir()
	if err := unix.Mount("none", small, "tmpfs", 0, "size=32m"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(small, unix.MNT_DETACH)
	open := func(path string) Written {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return Written{Dir: f}
	}
	g := groupIn(t, bare(), "receipt", runner.Limits{Disk: 64 << 20})
	for name, c := range map[string]struct {
		dirs []Written
		want runner.Status
	}{
		"none":  {nil, runner.Held},
		"small": {[]Written{open(small)}, runner.Held},
		"large": {[]Written{open(t.TempDir())}, runner.Degraded},
		"both":  {[]Written{open(small), open(t.TempDir())}, runner.Degraded},
	} {
		r := g.Receipt(Watched{Dirs: c.dirs})[3]
		if degraded := c.want == runner.Degraded; r.Name != "disk" || r.Status != c.want || strings.Contains(r.Mechanism, "watchdog") != degraded || (r.Why != "" && r.Fix != "") != degraded {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
