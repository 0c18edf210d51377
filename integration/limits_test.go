package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// usable checks that the host still responds: it starts processes, and has memory.
func usable(t *testing.T) {
	t.Helper()
	start := time.Now()
	if err := tool("/bin/sh", "-c", "for i in 1 2 3 4 5; do /bin/true || exit 1; done; head -c 1048576 /dev/zero >/dev/null"); err != nil {
		t.Errorf("the host suffers: %v", err)
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("the host answers after %v", d)
	}
}

// TestEscapeP11Forks checks that a fork bomb is bounded, ends with the run, and leaves the host usable (P11).
func TestEscapeP11Forks(t *testing.T) {
	b := newBox(t)
	cmd := b.command("demesne", "run", "--json", "--timeout", "4s", "--pids", "64", "--", "sh", "-c", "f() { f | f & }; f; f; sleep 60")
	over, used := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(used)
		eventually(t, "the bomb", func() bool {
			select {
			case <-over:
				return true
			default:
				return len(named("sh")) > 32
			}
		})
		usable(t)
	}()
	p := b.parse(b.finish(cmd))
	close(over)
	<-used
	if p.Reason != "timed-out" && p.Reason != "exited" {
		t.Errorf("reason %q: %s", p.Reason, p.Detail)
	}
	held(t, p, "pids")
	// The program counts its own processes, because a running bomb cannot be counted from outside.
	bounded(t, b, "forks")
}

func TestEscapeP11Threads(t *testing.T) { bounded(t, newBox(t), "threads") }

// bounded runs a program that starts as many tasks as it can and counts them. Threads of PID 1 count too: it has
// at least six, and the limit leaves room for sixteen.
func bounded(t *testing.T, b *box, program string) {
	t.Helper()
	got := b.sh("/in/"+program, "--pids", "100", "--in", tools+"/"+program)
	if n, err := strconv.Atoi(strings.TrimSpace(got)); err != nil || n < 50 || n > 100+16-6 {
		t.Errorf("%s %s with --pids 100", got, program)
	}
}

// TestEscapeP11Memory checks that running out of memory is reported as oom, never as a timeout or a plain kill
// (P11).
func TestEscapeP11Memory(t *testing.T) {
	b := newBox(t)
	for name, argv := range map[string][]string{
		"one process":   {"/in/eat", "anon"},
		"many":          {"/in/eat", "many"},
		"touching file": {"sh", "-c", "head -c 1g /dev/zero > /tmp/fill; /in/eat anon"},
		"slowly":        {"/in/eat", "slow"},
		"leaderless":    {"/in/eat", "leaderless"}, // P21
	} {
		t.Run(name, func(t *testing.T) {
			p, r := b.report([]string{"--memory", "128m", "--timeout", "60s", "--in", tools + "/eat"}, argv...)
			if p.Reason != "oom" || p.ExitCode != 137 || r.code != 137 {
				t.Errorf("reason %q, exit %d: %s\n%s", p.Reason, p.ExitCode, p.Detail, r.stderr)
			}
			held(t, p, "memory")
			usable(t)
		})
	}
	r := b.demesne("run", "--memory", "128m", "--timeout", "60s", "--in", tools+"/eat", "--", "/in/eat", "anon")
	if !strings.Contains(r.stderr, "memory") || r.code != 137 {
		t.Errorf("told as %+v", r)
	}
}

// TestLimitMemoryReserved checks that memory that is reserved but not touched costs nothing: Go, node and wasm
// reserve much. Without a cgroup, RLIMIT_DATA refuses large allocations, and the program must handle that.
func TestLimitMemoryReserved(t *testing.T) {
	b := newBox(t)
	b.sh("/in/eat reserve", "--memory", "128m", "--in", tools+"/eat")
}

// TestEscapeF19DiskFill checks that a sandbox can fill only its own disk limit (F19).
func TestEscapeF19DiskFill(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ name, script string }{
		{"/", "head -c 200m /dev/zero > /fill; test $(stat -c %s /fill) -le 70000000"},
		{"/tmp", "head -c 200m /dev/zero > /tmp/fill; test $(stat -c %s /tmp/fill) -le 70000000"},
		{"/dev/shm", "head -c 200m /dev/zero > /dev/shm/fill; test $(stat -c %s /dev/shm/fill) -le 70000000"},
		{"fallocate", "fallocate -l 200m /fill && exit 1; true"},
		{"inodes", `perl -e 'for (0..3000000) { open F, ">/tmp/f$_" or exit 0 } exit 1' || exit 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, r := b.report([]string{"--disk", "64m", "--timeout", "100s"}, "sh", "-c", c.script+"; true")
			if p.Reason == "exited" && p.ExitCode != 0 || p.Reason != "exited" && p.Reason != "disk" && p.Reason != "oom" {
				t.Errorf("%q: %s %s", p.Reason, p.Detail, r.stderr)
			}
			usable(t)
		})
	}
	for _, dir := range []string{"/out", "/workspace"} {
		t.Run(dir, func(t *testing.T) {
			host := b.mkdir("d" + strings.ReplaceAll(dir, "/", "-"))
			p, r := b.report([]string{"--disk", "64m", "--timeout", "60s", strings.Replace(dir, "/", "--", 1), host},
				"sh", "-c", "i=0; while sleep 0.1; do head -c 20m /dev/zero > "+dir+"/fill$i; i=$((i+1)); done")
			if p.Reason != "disk" || r.code != 137 {
				t.Errorf("reason %q, exit %d: %s", p.Reason, r.code, p.Detail)
			}
			os.RemoveAll(host)
		})
	}
}

// TestEscapeF21DiskHidden checks that space taken by unlinked files, or by inodes alone, also ends the sandbox
// (F21).
func TestEscapeF21DiskHidden(t *testing.T) {
	b := newBox(t)
	for _, how := range []string{"open", "mapped", "sent", "thread", "table", "empty"} {
		t.Run(how, func(t *testing.T) {
			host := b.mkdir("d-" + how)
			defer os.RemoveAll(host)
			p, r := b.report([]string{"--disk", "64m", "--timeout", "60s", "--out", host, "--in", tools + "/hide"}, "/in/hide", how, "/out")
			if p.Reason != "disk" || r.code != 137 {
				t.Errorf("reason %q, exit %d: %s%s", p.Reason, r.code, p.Detail, r.stderr)
			}
			if l := limitOf(t, p, "disk"); l.Status != "degraded" || !strings.Contains(l.Mechanism, "watchdog") || l.Why == "" {
				t.Errorf("counted by looking, and the receipt says %+v", l)
			}
		})
	}
}

// TestEscapeF37DiskSlow checks that a workload that makes a look slow or blind gains nothing: with very many mappings,
// files that come and go, processes that live for a moment, or programs without a name (F37).
func TestEscapeF37DiskSlow(t *testing.T) {
	b := newBox(t)
	flags := func(host string) []string {
		return []string{"--disk", "50m", "--timeout", "100s", "--out", host, "--in", tools + "/hide"}
	}
	for _, how := range []string{"slow", "descriptors", "stopped", "churn", "chain", "programs"} {
		t.Run(how, func(t *testing.T) {
			host := b.mkdir("d-" + how)
			defer os.RemoveAll(host)
			p, r := b.report(flags(host), "/in/hide", how, "/out")
			if p.Reason != "disk" || r.code != 137 {
				t.Errorf("reason %q, exit %d: %s%s", p.Reason, r.code, p.Detail, r.stderr)
			}
		})
	}
	t.Run("persistent", func(t *testing.T) {
		host := b.mkdir("d-persistent")
		defer os.RemoveAll(host)
		// The neighbour writes to the same file system, and hides nothing.
		neighbour := b.create("--disk", "50m", "--out", b.mkdir("d-neighbour"))
		id := b.create("--disk", "50m", "--out", host, "--in", tools+"/hide")
		b.must("exec", neighbour, "--", "sh", "-c", "head -c 20000000 /dev/zero > /out/mine")
		if r := b.demesne("exec", "--json", "--timeout", "100s", id, "--", "/in/hide", "slow", "/out"); r.code != 137 || b.parse(r).Reason != "disk" {
			t.Errorf("exit %d: %s%s", r.code, r.stdout, r.stderr)
		}
		b.must("exec", neighbour, "--", "test", "-s", "/out/mine")
	})
}

// TestEscapeP29KernelRoot checks that the limit on processes holds for the kernel's uid 0, which ignores RLIMIT_NPROC. The
// receipt must not call it enforced there (P29), even on a machine with the smallest possible pid_max.
// Root without CAP_SYS_ADMIN stands in for root of a container.
func TestEscapeP29KernelRoot(t *testing.T) {
	args := []string{"run", "--json", "--pids", "40", "--timeout", "10s", "--in", tools + "/forks", "--", "/in/forks"}
	judge := func(t *testing.T, p report) {
		t.Helper()
		switch l := limitOf(t, p, "pids"); {
		case strings.Contains(l.Mechanism, "watchdog"):
			if p.Reason != "pids" || l.Status != "degraded" || l.Why == "" {
				t.Errorf("reason %q: %s; %+v", p.Reason, p.Detail, l)
			}
		case os.Getuid() == 0 && l.Mechanism == "RLIMIT_NPROC", p.Reason != "timed-out" && p.Reason != "exited", l.Status != "held":
			t.Errorf("reason %q: %s; %+v", p.Reason, p.Detail, l)
		}
	}
	t.Run("ids enough", func(t *testing.T) {
		b := newBox(t)
		args := append(args, "300")
		cmd := b.command("demesne", args...)
		if os.Getuid() == 0 {
			cmd = b.command(program(t, "setpriv"), append([]string{"--bounding-set", "-sys_admin", bin + "/demesne"}, args...)...)
		}
		judge(t, b.parse(b.finish(cmd)))
	})
	if os.Getuid() != 0 || !pidMaxPerNamespace() {
		return
	}
	t.Run("fewest ids", func(t *testing.T) {
		b := newBox(t)
		// The namespace's PID 1 stays until the runner has cleaned up.
		script := `echo 301 > /proc/sys/kernel/pid_max && setpriv --bounding-set -sys_admin "$@"; code=$?
			cd $XDG_RUNTIME_DIR/demesne && while set -- *.lock && test -e "$1"; do sleep 0.05; done; exit $code`
		few := []string{"--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh", bin + "/demesne"}
		p := b.parse(b.finish(b.command(program(t, "unshare"), append(append(few, args...), "100")...)))
		judge(t, p)
		if l := limitOf(t, p, "pids"); l.Mechanism == "RLIMIT_NPROC" {
			t.Errorf("%+v", l)
		}
	})
}

// pidMaxPerNamespace reports whether kernel.pid_max is one of each pid namespace (Linux 6.14). Elsewhere it is the machine's.
func pidMaxPerNamespace() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return major > 6 || major == 6 && minor >= 14
}

// TestEscapeP26Users checks that the sum of processes is bounded where each user of an image has a limit of its
// own (P26).
func TestEscapeP26Users(t *testing.T) {
	needIDs(t)
	g := newGallery(t)
	ref, _ := g.simple("users:1")
	p, r := g.report([]string{"--image", ref, "--pids", "20", "--timeout", "20s", "--in", tools + "/users"}, "/in/users")
	l := limitOf(t, p, "pids")
	switch {
	case strings.HasPrefix(l.Mechanism, "cgroup"): // the cgroup refuses more processes
		if p.Reason != "timed-out" || l.Status != "held" {
			t.Errorf("reason %q: %s; %+v", p.Reason, p.Detail, l)
		}
	case p.Reason != "pids" || r.code != 137 || l.Status != "degraded" || !strings.Contains(l.Mechanism, "watchdog"):
		t.Errorf("reason %q, exit %d: %s; %+v", p.Reason, r.code, p.Detail, l)
	}
}

// TestEscapeP26Exec checks that the sum is bounded too where the caller runs commands as several users, and that the receipt
// says so from the second user on (P26).
func TestEscapeP26Exec(t *testing.T) {
	needIDs(t)
	b := newBox(t)
	pids := func(id string) limit {
		t.Helper()
		var one struct{ Receipt struct{ Limits []limit } }
		if err := json.Unmarshal([]byte(b.must("inspect", "--json", id)), &one); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(one.Receipt.Limits, func(l limit) bool { return l.Name == "pids" })
		return one.Receipt.Limits[i]
	}
	for _, first := range []string{"0", "1000"} {
		id := b.create("--pids", "20")
		b.must("exec", "--user", first, id, "--", "true")
		group := strings.HasPrefix(pids(id).Mechanism, "cgroup") // it refuses more processes
		if l := pids(id); l.Status != "held" && !strings.Contains(l.Mechanism, "kernel's uid 0") {
			t.Errorf("one user: %+v", l)
		}
		file := b.dir + "/result-" + first
		long := b.command("demesne", "exec", "--json="+file, "--timeout", "60s", id, "--", "sh", "-c", "touch up; sleep 1000")
		if err := long.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the command to start", func() bool { return b.demesne("exec", "--user", "2000", id, "--", "test", "-e", "up").code == 0 })
		l := pids(id)
		if degraded := l.Status == "degraded" && strings.Contains(l.Mechanism, "a watchdog for all"); degraded == group || group && l.Status != "held" {
			t.Errorf("several users: %+v", l)
		}
		over := make(chan struct{})
		go func() { long.Wait(); close(over) }()
		for n := 2000; n < 2010 && !group; n++ { // 10 processes of each, which remain
			select {
			case <-over:
				n = 2010
			default:
				b.demesne("exec", "--user", fmt.Sprint(n), id, "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 > /dev/null 2>&1 & done")
			}
		}
		if group {
			long.Process.Kill()
		}
		<-over
		if !group {
			if p := b.parse(result{stdout: read(file)}); p.Reason != "pids" {
				t.Errorf("several users run all they want: %s: %s", p.Reason, p.Detail)
			}
		}
		b.demesne("rm", id)
	}
}

// TestEscapeP11Descriptors checks that descriptors run out inside the sandbox, not on the host (P11).
func TestEscapeP11Descriptors(t *testing.T) {
	b := newBox(t)
	if got := b.sh("/in/fds", "--in", tools+"/fds"); !strings.HasPrefix(got, "refused after ") {
		t.Errorf("fds: %q", got)
	}
	usable(t)
}

// TestLimitCPUs checks that the kernel enforces a CPU limit, by a quota of the control group or by CPU affinity.
// The receipt says which.
func TestLimitCPUs(t *testing.T) {
	b := newBox(t)
	id := b.create("--cpus", "0.5")
	var one struct{ Receipt struct{ Limits []limit } }
	if err := json.Unmarshal([]byte(b.must("inspect", "--json", id)), &one); err != nil {
		t.Fatal(err)
	}
	for _, l := range one.Receipt.Limits {
		if l.Name != "cpus" {
			continue
		}
		switch controller, file, _ := strings.Cut(l.Mechanism, " "); {
		case l.Mechanism == "sched_setaffinity":
			if got := b.must("exec", id, "--", "nproc"); got != "1\n" || l.Status != "degraded" || l.Value != "1" || l.Why == "" {
				t.Errorf("%+v, and %s processors", l, got)
			}
		case controller == "cgroup1" || controller == "cgroup2":
			got := readFile(t, groupFile(t, named("demesne-init")[0], "cpu", file))
			if want := map[string]string{"cgroup1": "50000\n", "cgroup2": "50000 100000\n"}[controller]; got != want || l.Status != "held" {
				t.Errorf("%+v, and the kernel has %q", l, got)
			}
		default:
			t.Errorf("held by nothing: %+v", l)
		}
		return
	}
	t.Errorf("the receipt has no cpus: %+v", one.Receipt.Limits)
}

// groupFile returns the path of a limit's file in the control group of process pid's sandbox, the parent of the
// process's own group.
func groupFile(t *testing.T, pid int, controller, file string) string {
	t.Helper()
	for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/cgroup", pid))) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if slices.Contains(strings.Split(f[1], ","), controller) || f[1] == "" && strings.HasPrefix(file, "cpu.max") {
			return filepath.Join("/sys/fs/cgroup", f[1], filepath.Dir(f[2]), file)
		}
	}
	t.Fatalf("process %d is in no group of %s", pid, controller)
	return ""
}

// TestLimitDefaults checks that the receipt contains the default limits.
func TestLimitDefaults(t *testing.T) {
	b := newBox(t)
	p, _ := b.report(nil, "true")
	got := map[string]string{}
	for _, l := range p.Receipt.Limits {
		got[l.Name] = l.Value
	}
	if got["pids"] != "512" || got["disk"] != "2147483648" || got["memory"] == "" || got["memory"] == "none" {
		t.Errorf("defaults: %v", got)
	}
}

// held checks that the receipt names the mechanism of a limit.
func held(t *testing.T, p report, name string) {
	t.Helper()
	if l := limitOf(t, p, name); l.Mechanism == "" || l.Status == "" || l.Status == "missing" {
		t.Errorf("%s: %+v", name, l)
	}
}

// limitOf returns the receipt's entry for a limit.
func limitOf(t *testing.T, p report, name string) limit {
	t.Helper()
	for _, l := range p.Receipt.Limits {
		if l.Name == name {
			return l
		}
	}
	t.Errorf("the receipt has no %s", name)
	return limit{}
}

// TestLimitsVerb checks that a limit which a person changes holds for the next command of a running sandbox.
func TestLimitsVerb(t *testing.T) {
	b := newBox(t)
	id := b.create("--memory", "1g", "--pids", "300")
	limits := func(flag string) result { return b.demesne("limits", "--cpus", "1", flag, id) }
	for flag, want := range map[string]string{"--pids=301": "301 is above 300", "--memory=none": "cannot be removed"} {
		if r := limits(flag); r.code != 125 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	for _, step := range []struct {
		memory string
		killed bool
	}{{"900m", false}, {"64m", true}} { // the last one may end the sandbox
		if r := limits("--memory=" + step.memory); r.code != 0 || r.stdout+r.stderr != "" {
			t.Fatalf("%+v", r)
		}
		if r := b.demesne("exec", id, "--", "python3", "-c", "len(b'x' * int(3e8))"); (r.code == 0) == step.killed {
			t.Errorf("300 MB in %s: %+v", step.memory, r)
		}
	}
}
