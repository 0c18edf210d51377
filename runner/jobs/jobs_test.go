package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
)

// dirVar names the store's directory and makes the test binary act as a job's process.
const dirVar = "DEMESNE_TEST_JOBS"

func TestMain(m *testing.M) {
	dir := os.Getenv(dirVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := Open(dir)
	if err == nil {
		fmt.Sscan(os.Getenv("DEMESNE_TEST_SLOTS"), &s.Slots)
		err = s.Attend(context.Background(), os.Args[len(os.Args)-1], 4<<20, work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work performs the request of a test.
func work(ctx context.Context, what json.RawMessage, out, errs io.Writer) (*runner.Result, error) {
	var text string
	if err := json.Unmarshal(what, &text); err != nil {
		return nil, err
	}
	switch text {
	case "fail":
		return nil, errors.New("pull image: no route")
	case "lost":
		return &runner.Result{ExitCode: 125, Reason: runner.Lost, Detail: "the runner was killed"}, nil
	case "die":
		fmt.Fprintln(os.Stderr, "no disk\nand more")
		os.Exit(1)
	case "stay":
		fmt.Fprintln(out, "staying")
		<-ctx.Done()
		return &runner.Result{ExitCode: 137, Reason: runner.Signaled}, nil
	case "flood":
		line := []byte(strings.Repeat("x", 1023) + "\n")
		for range 16 << 10 {
			out.Write(line)
		}
	}
	io.WriteString(out, "out of "+text)
	io.WriteString(errs, "err")
	return &runner.Result{ExitCode: 3, Reason: runner.Exited}, nil
}

func store(t *testing.T, slots int) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	s.Slots = slots
	t.Setenv(dirVar, s.dir)
	t.Setenv("DEMESNE_TEST_SLOTS", fmt.Sprint(slots))
	return s
}

func start(t *testing.T, s *Store, what string) *Job {
	t.Helper()
	j, err := s.Start([]string{"/proc/self/exe"}, what)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func wait(t *testing.T, s *Store, id string) *Job {
	t.Helper()
	j, err := s.Wait(t.Context(), id, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// awaitStatus waits until a job has the status want.
func awaitStatus(t *testing.T, s *Store, id string, want Status) {
	t.Helper()
	for {
		j, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if j.Status == want {
			return
		}
		if j.Status.Over() {
			t.Fatalf("job is %s (%s), not %s", j.Status, j.Message, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestBegun checks that Begun returns once a job runs or has ended.
func TestBegun(t *testing.T) {
	s := store(t, 1)
	first, second := start(t, s, "stay"), start(t, s, "stay")
	begun := func(id string, most time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		return s.Begun(ctx, id)
	}
	if err := begun(first.ID, time.Minute); err != nil {
		t.Error(err)
	}
	if j, err := s.Get(first.ID); err != nil || j.Status != Running {
		t.Errorf("the first: %+v, %v", j, err)
	}
	if err := begun(second.ID, 50*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second: %v", err)
	}
	if _, err := s.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if err := begun(second.ID, time.Minute); err != nil {
		t.Error(err)
	}
	if j, err := s.Get(second.ID); err != nil || j.Status != Running {
		t.Errorf("the second, after the first: %+v, %v", j, err)
	}
	third := start(t, s, "stay")
	kill(t, third.ID)
	if err := begun(third.ID, time.Minute); err != nil {
		t.Errorf("killed before its turn: %v", err)
	}
	if _, err := s.Cancel(t.Context(), second.ID); err != nil {
		t.Fatal(err)
	}
}

func TestHowJobsEnd(t *testing.T) {
	s := store(t, 4)
	for _, c := range []struct {
		what, message string
		want          Status
		code          int
	}{
		{"this", "", Succeeded, 3},
		{"fail", "pull image: no route", Failed, 0},
		{"lost", "the runner was killed", Failed, 125},
		{"die", "the process that ran the job ended: no disk", Failed, 0},
	} {
		j := wait(t, s, start(t, s, c.what).ID)
		code := 0
		if j.Result != nil {
			code = j.Result.ExitCode
		}
		if j.Status != c.want || j.Message != c.message || code != c.code || j.Ended.IsZero() {
			t.Errorf("%s: %+v", c.what, j)
		}
	}
	if _, err := s.Get("job-00000000-0000-0000-0000-000000000000"); !errors.Is(err, ErrUnknown) {
		t.Errorf("a job that was not started: %v", err)
	}
	for _, id := range []string{"", "nope", "job-../../x", "job-", "slots"} {
		if _, err := s.Get(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

// TestLogKeepsTheEnd: a log has the stream's size, its head and its end, and the part between takes no space.
func TestLogKeepsTheEnd(t *testing.T) {
	s := store(t, 1)
	j := wait(t, s, start(t, s, "flood").ID)
	path := filepath.Join(s.dir, j.ID, "stdout.log")
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if want := int64(16<<20 + len("out of flood")); st.Size != want || j.Stdout != want {
		t.Errorf("size %d, counted %d, want %d", st.Size, j.Stdout, want)
	}
	if st.Blocks*512 > 8<<20 {
		t.Errorf("%d bytes are kept", st.Blocks*512)
	}
	tail, err := s.Tail(j.ID, "stdout", 12)
	if err != nil || tail != "out of flood" {
		t.Errorf("tail %q, %v", tail, err)
	}
	if head, err := s.Head(j.ID, "stdout", 1<<30); err != nil || len(head) != headKept || strings.Trim(head, "x\n") != "" {
		t.Errorf("head of %d bytes, %v", len(head), err)
	}
}

func TestCancel(t *testing.T) {
	s := store(t, 1)
	running := start(t, s, "stay")
	awaitStatus(t, s, running.ID, Running)
	model := *s
	model.Frontend = runner.FrontendMCP
	queued := start(t, &model, "stay")
	for i, id := range []string{queued.ID, running.ID, running.ID} {
		by, want := s, "cancelled by a call of cli"
		if i == 0 {
			by, want = &model, "cancelled by a call of mcp"
		}
		if j, err := by.Cancel(t.Context(), id); err != nil || j.Status != Cancelled || j.Message != want || j.Result != nil && j.Result.Detail != want {
			t.Fatalf("cancel: %+v, %v", j, err)
		}
	}
	done := wait(t, s, start(t, s, "x").ID)
	if j, err := s.Cancel(t.Context(), done.ID); err != nil || j.Status != Succeeded {
		t.Errorf("cancel what has ended: %+v, %v", j, err)
	}
}

// TestFollow: Follow returns all output of a job that ends, and always returns at its end.
func TestFollow(t *testing.T) {
	s := store(t, 2)
	j := start(t, s, "stay")
	r, w := io.Pipe()
	var errs strings.Builder
	followed := make(chan *Job, 1)
	go func() {
		j, err := s.Follow(t.Context(), j.ID, 1<<20, w, &errs)
		if err != nil {
			t.Error(err)
		}
		followed <- j
		w.Close()
	}()
	line := make([]byte, len("staying\n"))
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "staying\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if _, err := s.Cancel(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(r)
	if j := <-followed; err != nil || len(rest) > 0 || j.Status != Cancelled {
		t.Errorf("%q, %v, %s", rest, err, j.Status)
	}
	var out strings.Builder
	if j, err := s.Follow(t.Context(), j.ID, 4, &out, &errs); err != nil || out.String() != "ing\n" || !j.Status.Over() {
		t.Errorf("the end of it: %q, %v", &out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j = start(t, s, "stay")
	if j, err := s.Follow(ctx, j.ID, 4, &out, &errs); err != nil || j.Status.Over() {
		t.Errorf("given up: %+v, %v", j, err)
	}
	if _, err := s.Cancel(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Follow(t.Context(), "job-none", 4, &out, &errs); !errors.Is(err, ErrUnknown) {
		t.Errorf("of none: %v", err)
	}
}

func TestQueue(t *testing.T) {
	s := store(t, 1)
	s.Queue = 2
	if !s.Free() {
		t.Error("no slot is free without a job")
	}
	first := start(t, s, "stay")
	if err := s.Begun(t.Context(), first.ID); err != nil { // a running job may still have its place in the queue
		t.Fatal(err)
	}
	if s.Free() {
		t.Error("its only slot is free while a job runs")
	}
	second, third := start(t, s, "a"), start(t, s, "b")
	if _, err := s.Start([]string{"/proc/self/exe"}, "c"); !errors.Is(err, ErrFull) {
		t.Errorf("the queue took a third: %v", err)
	}
	if j, _ := s.Get(third.ID); j.Status != Queued {
		t.Errorf("third is %s", j.Status)
	}
	if _, err := s.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	a, b := wait(t, s, second.ID), wait(t, s, third.ID)
	if b.Started.Before(a.Ended) {
		t.Errorf("the second ended at %v, the third started at %v", a.Ended, b.Started)
	}
}

// TestKilled: a job whose process is killed at any moment has failed, as seen by every caller.
func TestKilled(t *testing.T) {
	s := store(t, 8)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			j := start(t, s, "stay")
			time.Sleep(time.Duration(i) * 200 * time.Microsecond) // another moment in each round
			kill(t, j.ID)
			got := wait(t, s, j.ID)
			if got.Status != Failed || !strings.Contains(got.Message, "was killed") {
				t.Errorf("killed after %d00 µs: %s, %q", 2*i, got.Status, got.Message)
			}
		})
	}
	wg.Wait()
}

// kill kills the process whose last argument is the job's id.
func kill(t *testing.T, id string) {
	for {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			line, _ := os.ReadFile(dir + "/cmdline")
			if strings.HasSuffix(string(line), "\x00"+id+"\x00") {
				var pid int
				fmt.Sscan(filepath.Base(dir), &pid)
				syscall.Kill(pid, syscall.SIGKILL)
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// TestStarterMayEnd: a job survives when its starter is killed right after Start returns.
func TestStarterMayEnd(t *testing.T) {
	if os.Getenv("DEMESNE_TEST_STARTER") != "" {
		s, err := Open(os.Getenv("DEMESNE_TEST_STARTER"))
		if err != nil {
			t.Fatal(err)
		}
		os.Setenv(dirVar, s.dir)
		j, err := s.Start([]string{"/proc/self/exe"}, "x")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("id:", j.ID)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	s := store(t, 1)
	c := exec.Command("/proc/self/exe", "-test.run=^TestStarterMayEnd$")
	c.Env = append(os.Environ(), dirVar+"=", "DEMESNE_TEST_STARTER="+s.dir)
	out, _ := c.Output()
	var id string
	if _, err := fmt.Sscanf(string(out), "id: %s", &id); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if j := wait(t, s, id); j.Status != Succeeded {
		t.Errorf("%s: %s", j.Status, j.Message)
	}
}

func TestPrune(t *testing.T) {
	s := store(t, 2)
	old, live := wait(t, s, start(t, s, "x").ID), start(t, s, "stay")
	if n, err := s.Prune(time.Now().Add(time.Hour), func(*Job) string { return "one" }); n != 0 || err != nil {
		t.Errorf("removed %d of a group that has a job which runs, %v", n, err)
	}
	if n, err := s.Prune(time.Now().Add(time.Hour), func(j *Job) string { return j.ID }); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if _, err := s.Get(old.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("the old one is still there: %v", err)
	}
	if _, err := s.Cancel(t.Context(), live.ID); err != nil {
		t.Fatal(err)
	}
}

// TestResultOnce: of several concurrent results exactly one is written, complete, with or without reserved space.
// Nothing else remains.
func TestResultOnce(t *testing.T) {
	for _, reserved := range []bool{true, false} {
		dir := t.TempDir()
		if reserved {
			if err := reserve(dir); err != nil {
				t.Fatal(err)
			}
		}
		errs := make(chan error)
		for n := range 8 {
			go func() { errs <- writeResult(dir, ended{Message: strings.Repeat(fmt.Sprint(n), 1000*n)}) }()
		}
		won := 0
		for range 8 {
			switch err := <-errs; {
			case err == nil:
				won++
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		}
		var e ended
		if err := readJSON(filepath.Join(dir, "result.json"), &e); won != 1 || err != nil || strings.Trim(e.Message, e.Message[:min(1, len(e.Message))]) != "" {
			t.Errorf("%d wrote it, %v: %q", won, err, e.Message)
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Errorf("left: %v", list)
		}
	}
}

// TestLogLost checks that a log on a full disk ends nothing, and tells how much of the stream it lost.
func TestLogLost(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := NewLog(f, 0)
	if err := l.Lost(); err != nil {
		t.Error(err)
	}
	if n, err := l.Write([]byte("five\n")); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if err := l.Lost(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "5 bytes are lost") {
		t.Error(err)
	}
}
