package limits

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
)

const keyVar = "DEMESNE_LIMITS_TEST_KEY"

// TestMain makes the test binary its own workload as well: see forks.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "forks" {
		forks()
	}
	cgroup.AllowMounts()
	os.Exit(m.Run())
}

// bomb returns shell text that uses n MiB: tail keeps the last ten lines, and the input is a single line of n
// MiB. heldBomb holds the memory for a minute.
func bomb(n int) string { return fmt.Sprintf("head -c %dM /dev/zero | tail > /dev/null", n) }

func heldBomb(n int) string {
	return fmt.Sprintf("(head -c %dM /dev/zero; sleep 60) | tail > /dev/null", n)
}

// forks starts 300 processes, or as many as the limits allow.
func forks() {
	for range 300 {
		_, _ = os.StartProcess("/bin/sleep", []string{"sleep", "60"}, &os.ProcAttr{})
	}
	fmt.Println("done")
	time.Sleep(time.Minute) // the processes count as long as this one lives
	os.Exit(0)
}

// requireRoot skips the test without real root, which CI has.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(keyVar) == "" {
		t.Skip("needs root")
	}
}

// asRunner re-executes the calling test in a runner's environment: root of a user namespace with its own mount
// and cgroup namespaces. uid is that root's id on the host. In that process in is true. With groups, asRunner
// prepares groups first and requires that they are empty afterwards.
func asRunner(t *testing.T, uid, size int, groups bool) (key string, in bool) {
	t.Helper()
	if key := os.Getenv(keyVar); key != "" {
		os.Stdin.Read(make([]byte, 1)) // until the parent has moved this process
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
		entries, _ := filepath.Glob(d + "/*/inner")
		if len(entries) > 0 {
			t.Errorf("left behind: %v", entries)
		}
	}
	return "", false
}

// ordinary calls asRunner for a user without groups and without further ids.
func ordinary(t *testing.T) bool {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 12345
	}
	_, in := asRunner(t, uid, 1, false)
	return in
}

// sandbox is a process that stands in for a sandbox. It is a shell, PID 1 of nested user and pid namespaces,
// under the limits of g.
type sandbox struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.Writer
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
	s := &sandbox{t, c, in, bufio.NewReader(out)}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if err := g.Add(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, r := range g.Rlimits() {
		if err := unix.Prlimit(c.Process.Pid, r.Resource, &unix.Rlimit{Cur: r.Value, Max: r.Value}, nil); err != nil {
			t.Fatalf("prlimit %d: %v", r.Resource, err)
		}
	}
	s.say()
	return s
}

// say ends one read of the script.
func (s *sandbox) say() { io.WriteString(s.in, "\n") }

func (s *sandbox) pid() int { return s.cmd.Process.Pid }

// line reads one line of output.
func (s *sandbox) line() string {
	text, _ := s.out.ReadString('\n')
	return strings.TrimSpace(text)
}

func (s *sandbox) end() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func groupIn(t *testing.T, h *Host, id string, l runner.Limits) *Group {
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
	for _, r := range g.Receipt(Watched{}) {
		if r.Name == name {
			return r
		}
	}
	return runner.LimitReceipt{}
}

// alarm records the reports of Watch.
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

func (a *alarm) wait(t *testing.T, want runner.Reason) {
	t.Helper()
	select {
	case <-a.rang:
	case <-time.After(time.Minute):
		t.Fatalf("no %s in a minute", want)
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
	s := start(t, g, `"$1" forks; sleep 60`, self(t))
	if got := s.line(); got != "done" {
		t.Errorf("bomb said %q", got)
	}
	if _, n := processes(s.pid()); n < limit/2 || n > limit+ownThreads {
		t.Errorf("%d processes under a limit of %d", n, limit)
	}
	s.end()
}

// self copies the test binary to a place where a sandbox's user may execute it.
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
