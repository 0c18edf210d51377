package code_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"demesne/internal/need"
	"demesne/internal/text"
	"demesne/kernels"
	"demesne/kernels/code"
	"demesne/kernels/languages"
	"demesne/session"
)

// desk has a Service with directories of its own. At the end of the test it removes its sandboxes.
type desk struct {
	testing.TB
	*session.Service
	dir, mark string
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	need.That(t, os.Getenv("DEMESNE_BIN") != "", "DEMESNE_BIN, the directory of the programs")
	dir, err := os.MkdirTemp("/var/tmp", "code.")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(dir, 0o755)
	for name, value := range map[string]string{
		"DEMESNE_LIBEXEC": os.Getenv("DEMESNE_BIN"), "HOME": dir, "XDG_RUNTIME_DIR": dir + "/run", "DEMESNE_SANDBOX_ROOT": dir + "/kept",
		"DEMESNE_OUTPUT_ROOT": dir + "/out", "DEMESNE_IMAGE_STORE": dir + "/images", "DEMESNE_LINGER": "0",
	} {
		t.Setenv(name, value)
	}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	d := &desk{t, session.New(session.Options{}), dir, filepath.Base(dir)}
	t.Cleanup(d.end)
	return d
}

// end closes the service, and checks that no process and no directory is left.
func (d *desk) end() {
	d.Service.Close()
	deadline := time.Now().Add(time.Minute)
	for len(d.processes()) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if left := d.processes(); len(left) > 0 {
		d.Errorf("processes are left: %q", left)
	}
	left, _ := filepath.Glob(d.dir + "/out/*")
	for _, dir := range left {
		if files, _ := os.ReadDir(dir); len(files) == 0 {
			d.Errorf("an empty directory is left: %s", dir)
		}
	}
	os.RemoveAll(d.dir)
}

// processes lists the processes that have the name of the desk's directory in their command line or environment.
func (d *desk) processes() (found []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if p == fmt.Sprintf("/proc/%d", os.Getpid()) {
			continue
		}
		args, _ := os.ReadFile(p + "/cmdline")
		env, _ := os.ReadFile(p + "/environ")
		if bytes.Contains(args, []byte(d.mark)) || bytes.Contains(env, []byte(d.mark)) {
			found = append(found, strings.ReplaceAll(string(args), "\x00", " "))
		}
	}
	return found
}

// options returns the options of a session of the language on the host's files, with demesne's own kernel.
func options(t testing.TB, name string) code.Options {
	t.Helper()
	l, known := languages.Find(name)
	if !known {
		t.Fatalf("no language %q", name)
	}
	found := false
	for _, dir := range []string{"/usr/bin/", "/usr/local/bin/"} { // other directories of the path are not in the sandbox
		_, err := os.Stat(dir + l.Driver)
		found = found || err == nil
	}
	need.That(t, found, l.Driver)
	return code.Options{Language: l, Kernel: code.Driver}
}

func (d *desk) start(o code.Options) *code.Session {
	d.Helper()
	s, err := code.Start(d.Context(), d.Service, o, session.Callbacks{})
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(s.Close)
	return s
}

// said executes code and returns its stdout, its value and its exception.
func said(t testing.TB, s *code.Session, text string) string {
	t.Helper()
	r, err := s.Execute(t.Context(), kernels.Execution{Code: text, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	value, _ := r.Value.Text("text/plain")
	if r.Error != nil {
		value += r.Error.Type + ": " + r.Error.Message
	}
	return string(r.Stdout.End(1<<20)) + value
}

// TestSessionsApart checks that two sessions share no file, no process, no variable and no network.
func TestSessionsApart(t *testing.T) {
	d := newDesk(t)
	a, b := d.start(options(t, "python")), d.start(options(t, "python"))
	if got := said(t, a, `import os, socket, subprocess
places = ["/tmp/a", "/workspace/a", "/out/a", os.path.expanduser("~/a"), "/dev/shm/a"]
for name in places:
    open(name, "w").write("a")
p = subprocess.Popen(["sleep", "1000"])
l = socket.socket(); l.bind(("127.0.0.1", 4567)); l.listen()
u = socket.socket(socket.AF_UNIX); u.bind("\0apart"); u.listen()
[os.path.exists(n) for n in places], os.path.exists("/proc/%d" % p.pid)`); got != "([True, True, True, True, True], True)" {
		t.Fatal(got)
	}
	for _, c := range []struct{ text, want string }{
		{"places", "NameError: name 'places' is not defined"},
		{`import os, socket; [n for n in ("/tmp/a", "/workspace/a", "/out/a", os.path.expanduser("~/a"), "/dev/shm/a") if os.path.exists(n)]`, "[]"},
		{`[p for p in os.listdir("/proc") if p.isdigit() and open("/proc/" + p + "/cmdline", "rb").read().startswith(b"sleep")]`, "[]"},
		{`socket.socket().connect_ex(("127.0.0.1", 4567))`, "111"},
		{`socket.socket(socket.AF_UNIX).connect_ex("\0apart")`, "111"},
	} {
		if got := said(t, b, c.text); got != c.want {
			t.Errorf("%s: %s", c.text, got)
		}
	}
	if a.Sandbox.Out == b.Sandbox.Out {
		t.Error("both have one output directory")
	}
}

// TestDeaths checks that the session tells how its kernel ended, and that the others live on.
func TestDeaths(t *testing.T) {
	d := newDesk(t)
	other := d.start(options(t, "python"))
	for _, c := range []struct{ text, want string }{
		{"import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)", "killed (SIGKILL, 137)"},
		{"import ctypes\nprint('last words', flush=True)\nctypes.string_at(0)", "crashed: segmentation fault (SIGSEGV, 139)"},
		{"import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)", "terminated (SIGTERM, 143)"},
		{"import os\nprint('last words', flush=True)\nos._exit(3)", "exited with status 3"},
	} {
		s := d.start(options(t, "python"))
		r, err := s.Execute(t.Context(), kernels.Execution{Code: c.text, Timeout: 20 * time.Second})
		var death *code.Death
		if !errors.As(err, &death) || death.Reason != c.want || text.HintOf(err) == "" || !errors.Is(err, kernels.ErrDead) {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if r == nil || !strings.Contains(string(r.Stdout.End(100)), "last words") {
			t.Errorf("%s: output before the end: %+v", c.text, r)
		}
		if _, err := s.Execute(t.Context(), kernels.Execution{Code: "1"}); !errors.As(err, &death) || death.Reason != c.want {
			t.Errorf("%s: after the end: %v", c.text, err)
		}
		s.Close()
	}
	if got := said(t, other, "1 + 1"); got != "2" {
		t.Errorf("another session: %s", got)
	}
}

// TestDeathOutOfMemory checks that the memory limit is reported as such. Without control groups each process has the limit, and
// Python raises an exception that leaves the kernel alive.
func TestDeathOutOfMemory(t *testing.T) {
	d := newDesk(t)
	o := options(t, "python")
	o.Create.Spec.Limits.Memory = 96 << 20
	s := d.start(o)
	r, err := s.Execute(t.Context(), kernels.Execution{Code: "x = []\nwhile True: x.append(bytearray(1 << 20))", Timeout: 30 * time.Second})
	var death *code.Death
	switch {
	case errors.As(err, &death) && death.Reason == "out of memory":
	case err == nil && r.Error != nil && r.Error.Type == "MemoryError":
		// Where demesne polls the memory, it may end the kernel before the list is gone.
		_, err := s.Execute(t.Context(), kernels.Execution{Code: "del x; assert 1 + 1 == 2", Timeout: 30 * time.Second})
		if err != nil && (!errors.As(err, &death) || death.Reason != "out of memory") {
			t.Errorf("after a MemoryError: %v", err)
		}
	default:
		t.Errorf("%v, %+v", err, r)
	}
}

// TestDeathIdle checks that the end of a kernel that executes nothing is noticed.
func TestDeathIdle(t *testing.T) {
	d := newDesk(t)
	s := d.start(options(t, "python"))
	said(t, s, "import threading, os, time\nthreading.Thread(target=lambda: (time.sleep(0.2), os._exit(5))).start()")
	eventually(t, "the death to be noticed", func() bool { return s.Death() != nil })
	if d := s.Death(); d.Reason != "exited with status 5" || s.EndOf(s.Kernel()) != d {
		t.Errorf("%v, then %v", d, s.EndOf(s.Kernel()))
	}
}

// TestStuck checks that code that ignores interrupts is killed.
func TestStuck(t *testing.T) {
	d := newDesk(t)
	s := d.start(options(t, "python"))
	_, err := s.Execute(t.Context(), kernels.Execution{Code: "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)", Timeout: 2 * time.Second})
	if err == nil || !strings.HasPrefix(err.Error(), "CONTAINER_DIED: timed out") {
		t.Errorf("%v", err)
	}
}

// TestRestart checks that a new kernel has the files, and not the variables.
func TestRestart(t *testing.T) {
	d := newDesk(t)
	s := d.start(options(t, "python"))
	said(t, s, "x = 1\nopen('/tmp/kept', 'w').write('kept')")
	busy := make(chan error, 1)
	begun(t, s, "import time\nprint('up', flush=True)\ntime.sleep(60)", busy)
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-busy; err == nil || err.Error() != "CONTAINER_DIED: restarted" {
		t.Errorf("what the old kernel executed: %v", err)
	}
	if got := said(t, s, "open('/tmp/kept').read()"); got != "'kept'" {
		t.Errorf("file: %s", got)
	}
	if got := said(t, s, "x"); !strings.HasPrefix(got, "NameError") {
		t.Errorf("variable: %s", got)
	}
	// A dead kernel restarts too.
	s.Execute(t.Context(), kernels.Execution{Code: "import os; os._exit(1)"})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := said(t, s, "1 + 1"); got != "2" {
		t.Errorf("after a death: %s", got)
	}
	s.Close()
	if err := s.Restart(t.Context()); err == nil {
		t.Error("a closed session restarts")
	}
}

// begun executes code that writes something once it runs, and returns when it has. The error of its end goes to ended.
func begun(t *testing.T, s *code.Session, text string, ended chan<- error) {
	t.Helper()
	up := make(chan kernels.Output, 100)
	go func() {
		_, err := s.Execute(t.Context(), kernels.Execution{Code: text, Emit: func(o kernels.Output) { up <- o }})
		ended <- err
		close(up)
	}()
	if _, ok := <-up; !ok {
		t.Error("the code ended without output")
	}
}

// waiting counts the goroutines that wait in a select of that function.
func waiting(function string) (n int) {
	b := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(b[:runtime.Stack(b, true)]), "\n\n") {
		if state, stack, _ := strings.Cut(g, "\n"); strings.Contains(state, "[select") && strings.Contains(stack, function) {
			n++
		}
	}
	return n
}

// eventually waits until cond is true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestTurns checks that calls execute one after another, in their order.
func TestTurns(t *testing.T) {
	d := newDesk(t)
	s := d.start(options(t, "python"))
	said(t, s, "order = []")
	ended := make(chan error, 5)
	begun(t, s, "import time\norder.append(0)\ntry:\n  print('up', flush=True)\n  time.sleep(60)\nexcept KeyboardInterrupt: order.append(0)", ended)
	for n := 1; n < 5; n++ {
		go func() {
			_, err := s.Execute(t.Context(), kernels.Execution{Code: fmt.Sprintf("order.append(%d); time.sleep(0.01); order.append(%[1]d)", n)})
			ended <- err
		}()
		eventually(t, "the call to wait for its turn", func() bool { return waiting("code.(*Session).waitTurn(") == n })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Execute(ctx, kernels.Execution{Code: "order.append(99)"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that stopped waiting: %v", err)
	}
	s.Interrupt()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got := said(t, s, "order"); got != "[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]" {
		t.Errorf("%s", got)
	}
}

// TestStoreLimits checks the limits of a store, and that it ends no busy session.
func TestStoreLimits(t *testing.T) {
	d := newDesk(t)
	st := code.NewStore(d.Service, code.Limits{Sessions: 2, PerCaller: 2})
	t.Cleanup(st.Close)
	create := func(caller string) (*code.Session, error) {
		return st.Create(t.Context(), caller, options(t, "python"), session.Callbacks{})
	}
	a, err1 := create("a")
	b, err2 := create("a")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if _, err := create("a"); !errors.Is(err, code.ErrTooMany) || !strings.Contains(text.HintOf(err), a.ID) || !strings.Contains(text.HintOf(err), b.ID) {
		t.Errorf("more than a caller may have: %v, %s", err, text.HintOf(err))
	}
	if _, err := st.Get("b", a.ID); !errors.Is(err, code.ErrNoSession) {
		t.Errorf("the session of another caller: %v", err)
	}
	if err := st.Stop("b", a.ID); !errors.Is(err, code.ErrNoSession) || len(st.List("b")) != 0 {
		t.Errorf("stop the session of another caller: %v", err)
	}
	// a was idle for longest, but is busy: b ends.
	release := a.Hold()
	c, err := create("c")
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, a, "1 + 1"); got != "2" {
		t.Errorf("the busy session: %s", got)
	}
	if _, err := st.Get("a", b.ID); !errors.Is(err, code.ErrNoSession) || !strings.Contains(err.Error(), "a new session needed its place") {
		t.Errorf("the session that had to go: %v", err)
	}
	if _, err := b.Execute(t.Context(), kernels.Execution{Code: "1"}); err == nil || !strings.Contains(err.Error(), "CONTAINER_DIED: the session has ended") {
		t.Errorf("execute in the session that had to go: %v", err)
	}
	defer c.Hold()()
	if _, err := create("d"); !errors.Is(err, code.ErrTooMany) || !strings.Contains(err.Error(), "all 2 are busy") {
		t.Errorf("all are busy: %v", err)
	}
	release()
	if _, err := create("d"); err != nil {
		t.Errorf("one is not busy any more: %v", err)
	}
	if err := st.Stop("c", c.ID); err != nil {
		t.Error(err)
	}
	st.Close()
	if _, err := create("e"); err == nil {
		t.Error("a closed store makes sessions")
	}
}

// TestStoreIdle checks idle times and ages.
func TestStoreIdle(t *testing.T) {
	d := newDesk(t)
	st := code.NewStore(d.Service, code.Limits{Idle: time.Second})
	t.Cleanup(st.Close)
	idle, err1 := st.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
	busy, err2 := st.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	said(t, busy, "import time; time.sleep(3)")
	if _, err := st.Get("", idle.ID); !errors.Is(err, code.ErrNoSession) || !strings.Contains(err.Error(), "it was not used for 1s") {
		t.Errorf("the idle session: %v", err)
	}
	if _, err := st.Get("", busy.ID); err != nil {
		t.Errorf("the busy session: %v", err)
	}
	old := code.NewStore(d.Service, code.Limits{Age: time.Second})
	t.Cleanup(old.Close)
	s, err := old.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	said(t, s, "import time; time.sleep(3)") // a busy session is not ended
	eventually(t, "its end", func() bool { _, err = old.Get("", s.ID); return err != nil })
	if !strings.Contains(err.Error(), "it was older than 1s") {
		t.Errorf("the old session: %v", err)
	}
}

// TestPrepared checks that sessions started ahead are used once, are equal to others, and end.
func TestPrepared(t *testing.T) {
	d := newDesk(t)
	st := code.NewStore(d.Service, code.Limits{Prepared: 2, Sessions: 1})
	t.Cleanup(st.Close)
	seen := map[string]bool{}
	for range 4 {
		s, err := st.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
		if err != nil {
			t.Fatal(err)
		}
		if seen[s.Sandbox.ID] {
			t.Fatal("a sandbox was used twice")
		}
		seen[s.Sandbox.ID] = true
		if got := said(t, s, "import os\n'x' in globals(), os.path.exists('/tmp/x')"); got != "(False, False)" {
			t.Errorf("a new session: %s", got)
		}
		said(t, s, "x = 1\nopen('/tmp/x', 'w').close()")
		d.sandboxes(2) // this one, and the next one
		eventually(t, "the next one", func() bool { return st.Ready() > 0 })
	}
	st.Close()
	d.sandboxes(0)

	// A prepared session that nothing asks for ends.
	st = code.NewStore(d.Service, code.Limits{Prepared: 1, PreparedIdle: 3 * time.Second})
	t.Cleanup(st.Close)
	s, err := st.Once(t.Context(), options(t, "python"), session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	d.sandboxes(2)
	s.Close()
	d.sandboxes(0)
}

// sandboxes waits until the runner has n sandboxes.
func (d *desk) sandboxes(n int) {
	d.Helper()
	eventually(d, fmt.Sprintf("%d sandboxes", n), func() bool {
		var ids []string
		d.With(context.Background(), func(e session.Engine) error {
			all, err := e.List(context.Background())
			for _, i := range all {
				ids = append(ids, i.ID)
			}
			return err
		})
		return len(ids) == n
	})
}

// TestPreparedYields checks that prepared sessions end where a new session would find no room.
func TestPreparedYields(t *testing.T) {
	t.Setenv("DEMESNE_MAX_TOTAL_PIDS", "250")
	d := newDesk(t)
	st := code.NewStore(d.Service, code.Limits{Prepared: 1})
	t.Cleanup(st.Close)
	o := options(t, "python")
	for _, n := range []int64{100, 120} { // 100 and 100 prepared, then 100 and 120
		o.Create.Spec.Limits.PIDs = n
		s, err := st.Create(t.Context(), "", o, session.Callbacks{})
		if err != nil {
			t.Fatalf("%d processes: %v", n, err)
		}
		if got := said(t, s, "1 + 1"); got != "2" {
			t.Errorf("%d processes: %s", n, got)
		}
		if n == 100 {
			d.sandboxes(2)
			eventually(t, "the prepared session", func() bool { return st.Ready() > 0 })
		}
	}
	d.sandboxes(2)
	o.Create.Spec.Limits.PIDs = 40
	if _, err := st.Create(t.Context(), "", o, session.Callbacks{}); err == nil {
		t.Error("a session beyond the bound was made")
	}
}

// TestPreparedDies checks that a prepared session whose sandbox has ended is given to no one.
func TestPreparedDies(t *testing.T) {
	d := newDesk(t)
	st := code.NewStore(d.Service, code.Limits{Prepared: 1})
	t.Cleanup(st.Close)
	s, err := st.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a prepared session", func() bool { return st.Ready() == 1 })
	// The prepared session's sandbox vanishes: the next session is a new one.
	d.With(t.Context(), func(e session.Engine) error {
		all, _ := e.List(t.Context())
		for _, i := range all {
			if i.ID != s.Sandbox.ID {
				e.Remove(t.Context(), i.ID)
			}
		}
		return nil
	})
	eventually(t, "its end to be noticed", func() bool { return st.Ready() == 0 })
	next, err := st.Create(t.Context(), "", options(t, "python"), session.Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	if got := said(t, next, "1 + 1"); got != "2" {
		t.Errorf("%s", got)
	}
}
