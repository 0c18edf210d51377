package limits

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
	"demesne/runner/limits/systemd"
)

const keyVar = "DEMESNE_LIMITS_TEST_KEY"

// TestMain makes the test binary its own workload, too: see bomb and forks.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "bomb" {
		bomb(os.Args[2])
	}
	if len(os.Args) == 2 && os.Args[1] == "forks" {
		forks()
	}
	os.Exit(m.Run())
}

// bomb takes n MiB and then sleeps. It is bounded by n.
func bomb(mib string) {
	n, _ := strconv.Atoi(mib)
	b, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		os.Exit(3)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	time.Sleep(20 * time.Second)
	os.Exit(0)
}

// forks starts 300 processes, as far as it is let.
func forks() {
	for range 300 {
		_, _ = os.StartProcess("/bin/sleep", []string{"sleep", "30"}, &os.ProcAttr{})
	}
	fmt.Println("done")
	time.Sleep(20 * time.Second)
	os.Exit(0)
}

// requireRoot skips unless the test is real root. CI is.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(keyVar) == "" {
		t.Skip("needs root")
	}
}

// asRunner runs the calling test once more in the place a runner has: root of a
// user namespace, as the host's uid, with its own mount and cgroup namespace. It
// says true in there. groups are prepared first, and must be empty afterwards.
func asRunner(t *testing.T, uid, size int, groups bool) (key string, in bool) {
	t.Helper()
	if key := os.Getenv(keyVar); key != "" {
		os.Stdin.Read(make([]byte, 1)) // until it was moved
		return key, true
	}
	key = fmt.Sprintf("test%d-%s", os.Getpid(), strings.ToLower(t.Name()))
	var dirs []string
	if groups {
		var err error
		if dirs, err = cgroup.Prepare(key, uid); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, d := range dirs {
				if _, err := os.Lstat(d); err == nil {
					t.Errorf("%s is left", d)
				}
			}
		})
		defer func() {
			if err := cgroup.Reap(dirs); err != nil {
				t.Error(err)
			}
		}()
	}
	c := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), keyVar+"="+key)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: size}}
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP,
		UidMappings: ids, GidMappings: ids,
		Credential: &syscall.Credential{NoSetGroups: true},
		Pdeathsig:  unix.SIGKILL,
	}
	release, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Enter(dirs, c.Process.Pid); err != nil {
		t.Error(err)
	}
	release.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	} else {
		t.Logf("%s", out.String())
	}
	for _, d := range dirs {
		entries, _ := filepath.Glob(d + "/*/box")
		if len(entries) > 0 {
			t.Errorf("left behind: %v", entries)
		}
	}
	return "", false
}

// ordinary is asRunner as a user without any group or second id.
func ordinary(t *testing.T) bool {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 12345
	}
	_, in := asRunner(t, uid, 1, false)
	return in
}

// sandbox is a process that stands in for a sandbox: a shell as PID 1 of nested
// user and pid namespaces, under the limits of g.
type sandbox struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, g *Group, script string, args ...string) *sandbox {
	t.Helper()
	c := exec.Command("sh", append([]string{"-c", "read go\n" + script, "sh"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = io.Discard
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &sandbox{t, c, bufio.NewReader(out)}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if err := g.Add(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, r := range g.Rlimits() {
		if err := unix.Prlimit(c.Process.Pid, r.Resource, &unix.Rlimit{Cur: r.Value, Max: r.Value}, nil); err != nil {
			t.Fatalf("prlimit %d: %v", r.Resource, err)
		}
	}
	io.WriteString(in, "\n")
	return s
}

func (s *sandbox) pid() int { return s.cmd.Process.Pid }

// line waits for a line of output.
func (s *sandbox) line() string {
	text, _ := s.out.ReadString('\n')
	return strings.TrimSpace(text)
}

func (s *sandbox) end() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func group(t *testing.T, h *Host, id string, l runner.Limits) *Group {
	t.Helper()
	g, err := h.New(id, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func receipt(g *Group, name string) runner.LimitReceipt {
	for _, r := range g.Receipt() {
		if r.Name == name {
			return r
		}
	}
	return runner.LimitReceipt{}
}

// alarm collects what Watch reports.
type alarm struct {
	mu     sync.Mutex
	reason runner.Reason
	detail string
	rang   chan struct{}
}

func newAlarm() *alarm { return &alarm{rang: make(chan struct{})} }

func (a *alarm) over(r runner.Reason, detail string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reason, a.detail = r, detail
	close(a.rang)
}

func (a *alarm) wait(t *testing.T, want runner.Reason, within time.Duration) {
	t.Helper()
	select {
	case <-a.rang:
	case <-time.After(within):
		t.Fatalf("no %s in %v", want, within)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Log(a.detail)
	if a.reason != want {
		t.Fatalf("ended as %q: %s", a.reason, a.detail)
	}
}

func countBomb(t *testing.T, g *Group, limit int) {
	t.Helper()
	s := start(t, g, `"$1" forks; sleep 20`, self(t))
	if got := s.line(); got != "done" {
		t.Errorf("bomb said %q", got)
	}
	if n := len(processes(s.pid())); n < limit/2 || n > limit+ownThreads {
		t.Errorf("%d processes under a limit of %d", n, limit)
	}
	s.end()
}

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

// requireUnified skips where version 2 does not have the controllers. This is what
// machines with systemd have; the others can run it in one (CONTRIBUTING.md).
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

// Run it in `systemd-run --user --scope -p Delegate=yes` for this one.
func TestCgroup2Own(t *testing.T) {
	requireUnified(t)
	if os.Getenv(keyVar) == "" && !strings.HasSuffix(ownPath(t), ".scope") {
		t.Skip("not in a scope of its own")
	}
	if key, in := asRunner(t, os.Geteuid(), 1, false); in {
		withGroups(t, key, mechanisms[1].name, cgroup2Mechanisms)
	}
}

func ownPath(t *testing.T) string {
	t.Helper()
	self, err := cgroup.Self()
	if err != nil {
		t.Fatal(err)
	}
	m, _ := cgroup.Find(self, "")
	return m.Path
}

func TestCgroup2Scope(t *testing.T) {
	requireUnified(t)
	if !systemd.Available() || os.Geteuid() == 0 && os.Getenv(keyVar) == "" {
		t.Skip("needs an ordinary user's systemd")
	}
	if os.Getenv(keyVar) == "" && strings.HasSuffix(ownPath(t), ".scope") {
		t.Skip("in a scope already")
	}
	if key, in := asRunner(t, os.Geteuid(), 1, false); in {
		withGroups(t, key, mechanisms[2].name, cgroup2Mechanisms)
	}
}

// withGroups tries the limits of a Host that should have found mechanism.
func withGroups(t *testing.T, key, mechanism string, names map[string]string) {
	began := time.Now()
	h := Open(key)
	t.Logf("opened in %v", time.Since(began))
	defer h.Close()
	// As the runner does: what is opened stays good when the path is covered.
	if err := unix.Mount("none", "/sys/fs/cgroup", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if p := h.Probe(); p.Status != runner.Held || p.Detail != mechanism {
		t.Fatalf("probe: %+v", p)
	}
	t.Run("receipt", func(t *testing.T) {
		began := time.Now()
		g := group(t, h, "receipt", runner.Limits{Memory: 64 << 20, PIDs: 100, CPUs: 0.5})
		made := time.Since(began)
		start(t, g, "sleep 5")
		began = time.Now()
		r := g.Receipt()
		t.Logf("made in %v, told in %v: %+v", made, time.Since(began), r)
		for name, want := range map[string]string{"memory": "67108864", "pids": "100", "cpus": "0.5"} {
			r := receipt(g, name)
			if r.Value != want || r.Mechanism != names[name] || r.Status != runner.Held {
				t.Errorf("%+v, want %v by %s", r, want, names[name])
			}
		}
	})
	t.Run("fork bomb", func(t *testing.T) {
		countBomb(t, group(t, h, "forks", runner.Limits{PIDs: 40}), 40)
	})
	t.Run("memory bomb", func(t *testing.T) { memoryBomb(t, h) })
	t.Run("processors", func(t *testing.T) {
		g := group(t, h, "cpu", runner.Limits{CPUs: 0.2})
		s := start(t, g, "while :; do :; done")
		time.Sleep(1500 * time.Millisecond)
		s.end()
		if used := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime(); used > 800*time.Millisecond {
			t.Errorf("used %v of 1.5 s with 0.2 processors", used)
		}
	})
	t.Run("many", func(t *testing.T) { many(t, h) })
	t.Run("close ends stragglers", func(t *testing.T) {
		g := group(t, h, "stragglers", runner.Limits{})
		s := start(t, g, "sleep 60 & sleep 60 & echo up; wait")
		s.line()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		s.cmd.Wait()
	})
	t.Run("kill", func(t *testing.T) {
		if h.place("memory").version != 2 {
			t.Skip("version 1 has no cgroup.kill")
		}
		g := group(t, h, "kill", runner.Limits{})
		s := start(t, g, "trap '' TERM; sleep 60 & echo up; wait")
		s.line()
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
		s.cmd.Wait()
	})
}

// memoryBomb: version 2 kills all of the sandbox at once, version 1 one process,
// and the watch tells.
func memoryBomb(t *testing.T, h *Host) {
	g := group(t, h, "memory", runner.Limits{Memory: 64 << 20})
	a := newAlarm()
	s := start(t, g, `"$1" bomb 256; echo $?; sleep 20`, self(t))
	defer g.Watch(s.pid(), nil, a.over)()
	got := s.line()
	if h.place("memory").version == 1 {
		if got != "137" {
			t.Errorf("bomb ended with %q", got)
		}
		a.wait(t, runner.OOM, 3*time.Second)
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

// many makes and ends 30 sandboxes at once.
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
			stop := g.Watch(c.Process.Pid, nil, func(r runner.Reason, s string) { t.Error(r, s) })
			g.Receipt()
			c.Wait()
			stop()
			if err := g.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// self copies the test binary to where a sandbox's user may execute it.
func self(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "limits")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "bomb")
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
