package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// info is the JSON output of ls and inspect.
type info struct {
	ID, Name, State string
	PID             int
	Receipt         struct{ Level string }
}

// create creates a persistent sandbox that lives until the end of the test.
func (b *box) create(flags ...string) string {
	b.Helper()
	r := b.demesne(append([]string{"create"}, flags...)...)
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 || id == "" || strings.ContainsAny(id, " \n") {
		b.Fatalf("create: %+v", r)
	}
	b.Cleanup(func() { b.demesne("rm", id) })
	return id
}

// TestSession checks that later processes can use a sandbox created by one process, with its files and processes.
func TestSession(t *testing.T) {
	b := newBox(t)
	id := b.create("--name", "build", "--memory", "256m")
	for _, step := range []struct{ script, want string }{
		{"echo kept > /tmp/f; cd /workspace; echo w > w; (while :; do date > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 &", ""},
		{"cat /tmp/f w; for i in 1 2; do while ! test -s /tmp/beat; do sleep 0.02; done; rm /tmp/beat; done; echo beating", "kept\nw\nbeating\n"},
	} {
		if r := b.demesne("exec", "build", "--", "sh", "-c", step.script); r.code != 0 || r.stdout != step.want {
			t.Errorf("%s: %+v", step.script, r)
		}
	}
	if r := b.demesne("exec", id, "-c", "exit 9"); r.code != 9 {
		t.Errorf("by id: %+v", r)
	}
	var all []info
	if err := json.Unmarshal([]byte(b.demesne("ls", "--json").stdout), &all); err != nil || len(all) != 1 || all[0].ID != id || all[0].Name != "build" {
		t.Errorf("ls --json: %v %+v", err, all)
	}
	var one info
	if err := json.Unmarshal([]byte(b.demesne("inspect", "--json", "build").stdout), &one); err != nil || one.ID != id || one.Receipt.Level == "" {
		t.Errorf("inspect --json: %v %+v", err, one)
	}
	if r := b.demesne("create", "--name", "build"); r.code != 125 {
		t.Errorf("the name twice: %+v", r)
	}
	if r := b.demesne("rm", "build"); r.code != 0 {
		t.Errorf("stop: %+v", r)
	}
	b.refused(t, id, "exec", id, "--", "true")
	eventually(t, "the runner to end with its last sandbox", func() bool { return len(descendants()) == 0 })
}

// TestSessionConcurrentExecs checks that concurrent commands in one sandbox have separate streams.
func TestSessionConcurrentExecs(t *testing.T) {
	b := newBox(t)
	id := b.create()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			cmd := b.command("demesne", "exec", "-i", id, "--", "sh", "-c", fmt.Sprintf("cat; echo err%d >&2; exit %d", i, i))
			cmd.Stdin = strings.NewReader(fmt.Sprint("in", i))
			if r := b.finish(cmd); r.code != i || r.stdout != fmt.Sprint("in", i) || r.stderr != fmt.Sprintf("err%d\n", i) {
				t.Errorf("exec %d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}

// TestSessionBackground checks that a command in a persistent sandbox can be a job. Its output and exit code are
// kept, and cancelling it leaves the sandbox as it is.
func TestSessionBackground(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box")
	job := strings.TrimSpace(b.must("exec", "--background", "box", "-c", "echo out; echo err >&2; echo kept > /root/f; exit 7"))
	if r := b.demesne("wait", job); r.code != 7 {
		t.Errorf("wait: %+v", r)
	}
	if r := b.demesne("logs", job); r.stdout != "out\n" || r.stderr != "err\n" {
		t.Errorf("logs: %+v", r)
	}
	job = strings.TrimSpace(b.must("exec", "--background", "box", "-c", "echo $$ > /root/pid; sleep 1000 & wait"))
	eventually(t, "it to begin", func() bool { return b.demesne("exec", "box", "--", "test", "-s", "/root/pid").code == 0 })
	if ls := b.must("jobs"); !strings.Contains(ls, "running") || !strings.Contains(ls, "box -c echo") {
		t.Errorf("jobs: %s", ls)
	}
	b.must("cancel", job)
	b.must("cancel", job)
	if r := b.demesne("wait", job); r.code != 125 || !strings.Contains(r.stderr, "cancelled") {
		t.Errorf("wait for what was cancelled: %+v", r)
	}
	eventually(t, "its processes to be gone", func() bool { return b.must("exec", "box", "-c", "pgrep -c sleep; true") == "0\n" })
	if got := b.must("exec", "box", "--", "cat", "/root/f"); got != "kept\n" {
		t.Errorf("the sandbox has %q", got)
	}
	b.refused(t, "no such sandbox", "exec", "--background", "nosuch", "--", "true")
	os.RemoveAll(b.home + "/.demesne/jobs")
}

// TestSessionMany checks that a user may have a bounded number of persistent sandboxes, however many are created
// at once. Snapshots do not count.
func TestSessionMany(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MAX_SANDBOXES=2")
	id := b.create("--key", "k")
	b.create()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { b.refused(t, "too many sandboxes (2)", "create") })
	}
	wg.Wait()
	b.must("stop", id) // a stopped sandbox counts too
	b.refused(t, "too many sandboxes (2)", "fork", id)
	b.refused(t, "too many sandboxes (2)", "run", "--key", "other", "--", "true")
	if again := strings.TrimSpace(b.must("create", "--key", "k")); again != id {
		t.Errorf("the key's: %s, not %s", again, id)
	}
	b.must("run", "--", "true")
	snap := strings.TrimSpace(b.must("snapshot", id))
	if all := strings.Fields(b.must("ls", "-q")); len(all) != 3 {
		t.Errorf("there are %q", all)
	}
	b.must("rm", snap)
	if left := names(b.out); len(left) != 2 { // of the two sandboxes; the run's stayed empty
		t.Errorf("output directories: %q", left)
	}
}

// TestSessionTotals checks that the limits of all live sandboxes together stay below the totals in the
// environment, however many are created at once. One-shot, persistent and restarted sandboxes count. A sandbox
// that asks for the remainder fits.
func TestSessionTotals(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_MAX_TOTAL_MEMORY=256m", "DEMESNE_MAX_TOTAL_PIDS=200")
	const much = "all memory limits together may be at most 268435456 bytes"
	first := b.create("--memory", "128m", "--pids", "50")
	var wg sync.WaitGroup
	var made atomic.Int64
	for range 4 {
		wg.Go(func() {
			if r := b.demesne("create", "--memory", "128m", "--pids", "50"); r.code == 0 {
				made.Add(1)
				t.Cleanup(func() { b.demesne("rm", strings.TrimSpace(r.stdout)) })
			} else if r.code != 125 || !strings.Contains(r.stderr, much) || !strings.Contains(r.stderr, "hint: ") {
				t.Errorf("refused as %+v", r)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d more were made", made.Load())
	}
	b.refused(t, much, "run", "--memory", "64m", "--", "true")
	b.refused(t, much, "run", "--", "true") // by default it may use half of the machine's memory
	b.must("stop", first)
	b.must("run", "--memory", "128m", "--pids", "50", "--", "true")
	b.refused(t, "all pids limits together may be at most 200 processes: with 1 other sandboxes it would be 201", "run", "--memory", "64m", "--pids", "151", "--", "true")
	b.refused(t, "this sandbox sets no limit", "run", "--memory", "none", "--pids", "50", "--", "true")
	b.create("--memory", "128m", "--pids", "50")
	b.refused(t, much, "exec", first, "--", "true") // needs a restart of the sandbox
	b.extra = append(b.extra, "DEMESNE_MAX_TOTAL_CPUS=many")
	b.refused(t, `DEMESNE_MAX_TOTAL_CPUS "many": not a limit`, "run", "--", "true")
	b.extra = nil
}

// TestSessionSwept checks that a runner removes expired sandboxes completely, even if it has no other work.
func TestSessionSwept(t *testing.T) {
	b := newBox(t)
	gone := func() {
		eventually(t, "the runner to be gone", func() bool { return len(descendants()) == 0 })
	}
	id := b.create("--name", "box")
	b.must("exec", "box", "-c", "mkdir /var/many; cd /var/many; seq 5000 | xargs touch")
	b.must("stop", "box")
	gone()
	if err := os.Chtimes(b.dir+"/k/"+id+"/until", time.Time{}, time.Now()); err != nil { // expire it
		t.Fatal(err)
	}
	b.refused(t, "no such sandbox", "inspect", "nosuch")
	gone()
	if left := names(b.dir + "/k"); len(left) > 0 {
		t.Errorf("it ended and left %q", left)
	}
}

// TestSessionKeyring checks that sandboxes use fewer kernel keys than there are sandboxes. A user may have 200
// keys (keyrings(7)).
func TestSessionKeyring(t *testing.T) {
	b := newBox(t)
	owner := os.Getuid()
	if owner == 0 { // other tests' runners make keys too: this user has only this test's
		owner = 54355
		b.as(owner)
	}
	keys := func() (n int) {
		text, err := os.ReadFile("/proc/key-users")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var user, usage, has int
			if fmt.Sscanf(line, "%d: %d %d/", &user, &usage, &has); user == owner {
				n = has
			}
		}
		return n
	}
	b.create()
	before := keys()
	for range 8 {
		b.create()
	}
	if more := keys() - before; more >= 8 {
		t.Errorf("8 sandboxes took %d keys", more)
	}
}

// TestSessionTerminalEnd checks that a terminal whose input is not a terminal ends with that input.
func TestSessionTerminalEnd(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box")
	for in, want := range map[string]string{"": "exit", "echo $((40+2))": "42"} {
		cmd := b.command("demesne", "exec", "-it", "box", "--", "bash", "--norc")
		cmd.Stdin = strings.NewReader(in)
		if r := b.finish(cmd); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%q: %+v", in, r)
		}
	}
}

// TestSessionTTL checks that a persistent sandbox ends by itself when its TTL is over.
func TestSessionTTL(t *testing.T) {
	b := newBox(t)
	id := b.create("--ttl", "1s")
	eventually(t, "the time to be up", func() bool { return len(descendants()) == 0 })
	b.refused(t, id, "exec", id, "--", "true")
}

// TestSessionPauseIdle checks that an idle sandbox is paused, and continues with its next use.
func TestSessionPauseIdle(t *testing.T) {
	b := newBox(t)
	b.create("--name", "box", "--pause-idle", "300ms")
	b.must("exec", "box", "-c", "(while :; do date >> /out/beat; sleep 0.02; done) >/dev/null 2>&1 & while ! test -s /out/beat; do sleep 0.02; done")
	var one struct {
		info
		Out string `json:"output_dir"`
	}
	state := func() string {
		if err := json.Unmarshal([]byte(b.must("inspect", "--json", "box")), &one); err != nil {
			t.Fatal(err)
		}
		return one.State
	}
	for range 3 {
		eventually(t, "it to be frozen", func() bool { return state() == "paused" })
		before, _ := os.ReadFile(one.Out + "/beat")
		time.Sleep(100 * time.Millisecond) // what is tested: nothing is written for so long
		if after, err := os.ReadFile(one.Out + "/beat"); err != nil || len(before) == 0 || len(after) != len(before) {
			t.Errorf("frozen, and %d bytes became %d, %v", len(before), len(after), err)
		}
		if says := b.must("inspect", "box"); strings.Count(says, "SIGSTOP") != 2 { // the mechanism, and the time of the pause
			t.Errorf("inspect says %q", says)
		}
		if ls := b.must("ls"); !strings.Contains(ls, "paused") {
			t.Errorf("ls says %q", ls)
		}
		b.must("exec", "box", "-c", "rm /out/beat; while ! test -s /out/beat; do sleep 0.02; done")
	}
	eventually(t, "it to be frozen", func() bool { return state() == "paused" })
	b.must("fork", "--name", "other", "box") // does not resume it
	if s := state(); s != "paused" {
		t.Errorf("after a fork it is %s", s)
	}
	for _, pid := range runners(true) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "what was stopped to be gone with its runner", func() bool { return len(descendants()) == 0 })
	if s := state(); s != "stopped" {
		t.Errorf("without its runner it is %s", s)
	}
	b.must("rm", "other", "box")
}

// TestSessionSurvivesCallers checks that a persistent sandbox outlives the callers of its commands, and the
// killed caller of a one-shot sandbox of the same runner.
func TestSessionSurvivesCallers(t *testing.T) {
	b := newBox(t)
	id := b.create()
	cmd, _ := b.started(nil, "echo ready; sleep 3222")
	cmd.Process.Kill()
	cmd.Wait()
	if r := b.demesne("exec", id, "--", "echo", "alive"); r.stdout != "alive\n" {
		t.Errorf("after another caller was killed: %+v", r)
	}
	start := time.Now()
	cmd = b.command("demesne", "exec", id, "--", "sleep", "3222")
	cmd.Start()
	eventually(t, "the command to start", func() bool { return sleepers("3222") > 0 })
	cmd.Process.Kill()
	cmd.Wait()
	if r := b.demesne("exec", id, "--", "echo", "alive"); r.stdout != "alive\n" {
		t.Errorf("after its own exec's caller was killed, %v: %+v", time.Since(start), r)
	}
}

// TestParallel makes 100 runs at once; all succeed, each with its own result.
func TestParallel(t *testing.T) {
	b := newBox(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			if r := b.demesne("run", "--", "sh", "-c", fmt.Sprintf("echo %d > /out/n; cat /out/n; ls /proc | grep -c '^[0-9]'; exit %d", i, i%100)); r.code != i%100 || !strings.HasPrefix(r.stdout, fmt.Sprint(i, "\n")) {
				t.Errorf("run %d: %+v", i, r)
			}
		})
	}
	wg.Wait()
}

// TestParallelApart checks that sandboxes of one runner cannot see each other.
func TestParallelApart(t *testing.T) {
	b := newBox(t)
	one, two := b.create(), b.create()
	b.demesne("exec", one, "-c", "echo secret > /tmp/s; (exec -a theirs sleep 3222 &) ")
	r := b.demesne("exec", two, "-c", "ls /tmp /workspace /out; ls /proc | grep -c '^[0-9]'; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 3222; kill -9 -1; true")
	if strings.Contains(r.stdout, "s\n") || strings.Contains(r.stdout, "3222") {
		t.Errorf("two sees: %+v", r)
	}
	if r := b.demesne("exec", one, "--", "cat", "/tmp/s"); r.stdout != "secret\n" {
		t.Errorf("one, after two killed what it could: %+v", r)
	}
}

// TestSessionIdleCPU checks that demesne's own processes need almost no processor time for a sandbox whose commands
// wait: the runner polls its limits, and the proxy has nothing to do.
func TestSessionIdleCPU(t *testing.T) {
	b := newBox(t)
	id := b.create("--allow-domain", "example.com")
	b.must("exec", id, "-c", "sleep 60 >/dev/null 2>&1 &")
	eventually(t, "the start to be over, and 3 s with less than 150 ms", func() bool {
		before := spent(t)
		time.Sleep(3 * time.Second) // what is measured
		used := spent(t) - before
		t.Logf("%v of 3 s", used)
		return used <= 150*time.Millisecond
	})
	b.must("rm", id)
}

// spent returns the processor time of all processes that this test started.
func spent(t *testing.T) (total time.Duration) {
	t.Helper()
	for _, p := range descendants() {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		for _, ticks := range f[11:13] { // utime and stime of proc_pid_stat(5)
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			total += time.Duration(n) * time.Second / 100
		}
	}
	return total
}
