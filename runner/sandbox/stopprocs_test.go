package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"demesne/internal/need"
)

// shell starts a shell that stands in for PID 1 of a sandbox, and below it a shell that runs text.
func shell(t *testing.T, text string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/bash", "-c", "bash -c \"$0\"; true", text)
	c.Dir = t.TempDir()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for left := below(c.Process.Pid); len(left) > 0; left = below(c.Process.Pid) {
			for _, pid := range left {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("waited for %s", what)
}

func size(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return st.Size()
}

// TestStop: stopped processes write nothing and then continue; a pipeline and its shell do not notice.
func TestStop(t *testing.T) {
	c := shell(t, `set -m; (while :; do echo x >> beat; done) & (sleep 0.1; sleep 0.1) | cat & wait %2; echo $? > done; wait`)
	beat := filepath.Join(c.Dir, "beat")
	eventually(t, "a beat", func() bool { return size(beat) > 0 })
	for round := range 20 {
		f, err := stopProcesses(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		before := size(beat)
		time.Sleep(10 * time.Millisecond)
		if after := size(beat); after != before {
			t.Fatalf("round %d: %d bytes became %d", round, before, after)
		}
		f.Resume()
		f.Resume()
		eventually(t, "the next beat", func() bool { return size(beat) > before })
	}
	eventually(t, "the pipeline's end", func() bool { return size(filepath.Join(c.Dir, "done")) > 0 })
	if text, _ := os.ReadFile(filepath.Join(c.Dir, "done")); string(text) != "0\n" {
		t.Errorf("the pipeline ended with %q", text)
	}
}

// TestStoppedStays: processes stopped before a Pause remain stopped after the Thaw.
func TestStoppedStays(t *testing.T) {
	c := shell(t, "sleep 1000 & sleep 1000 & wait")
	eventually(t, "two children", func() bool { return len(below(c.Process.Pid)) == 3 })
	both := below(c.Process.Pid)[1:]
	syscall.Kill(both[0], syscall.SIGSTOP)
	eventually(t, "a stop", func() bool { return all(both[0], stopped) })
	f, err := stopProcesses(c.Process.Pid)
	if err != nil || !all(both[1], stopped) {
		t.Fatalf("stopped %t, %v", all(both[1], stopped), err)
	}
	f.Resume()
	eventually(t, "the other to go on", func() bool { return !all(both[1], stopped) })
	if !all(both[0], stopped) {
		t.Error("what was stopped before goes on")
	}
}

// TestStranger: a process outside the sandbox is never stopped, whatever its pid.
func TestStranger(t *testing.T) {
	c, other := shell(t, "sleep 1000; true"), shell(t, "sleep 1000; true")
	f := &stoppedProcesses{fds: map[int]int{}}
	f.stop(c.Process.Pid, other.Process.Pid)
	f.stop(c.Process.Pid, 1)
	f.stop(c.Process.Pid, 1<<22)
	if len(f.order) > 0 {
		t.Errorf("stopped %v", f.order)
	}
}

func TestAlone(t *testing.T) {
	c := shell(t, "exec sleep 1000")
	eventually(t, "a child", func() bool { return !alone(c.Process.Pid) })
	sleep := below(c.Process.Pid)[0]
	if !alone(sleep) {
		t.Error("what sleeps has descendants")
	}
}

// TestStat: a command name may look like the rest of the line.
func TestStat(t *testing.T) {
	for text, want := range map[string]struct {
		state  byte
		parent int
	}{
		"7 (a) S 3 7":           {'S', 3},
		"7 (a) R 1 (b) T 4 7":   {'T', 4},
		"7 (a\n) Z 2) R 5 7\n":  {'R', 5},
		"":                      {0, 0},
		"7 (a)":                 {0, 0},
		"7 (a) " + "S notapid ": {'S', 0},
	} {
		path := filepath.Join(t.TempDir(), strconv.Itoa(len(text)))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if state, parent := stat(path); state != want.state || parent != want.parent {
			t.Errorf("%q: %c, %d", text, state, parent)
		}
	}
}

// TestVfork: a process that waits for a child of its vfork(2) counts as stopped with that child.
func TestVfork(t *testing.T) {
	// dash starts programs by vfork; a stop in the middle of it takes several tries.
	c := shell(t, "exec dash -c 'while :; do /bin/true; done'")
	eventually(t, "children", func() bool { return len(below(c.Process.Pid)) > 1 })
	for range 300 {
		f, err := stopProcesses(c.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		f.Resume()
	}
}

// TestRestless: a process that forks without end is either stopped, or left running and reported.
func TestRestless(t *testing.T) {
	c := shell(t, `f() { (f) & }; for i in 1 2 3; do while :; do /bin/true; done & done; wait`)
	eventually(t, "children", func() bool { return len(below(c.Process.Pid)) > 2 })
	f, err := stopProcesses(c.Process.Pid)
	switch {
	case err == nil:
		f.Resume()
	case !errors.Is(err, errRestless):
		t.Error(err)
	}
	eventually(t, "them to go on", func() bool {
		for _, pid := range below(c.Process.Pid) {
			if !all(pid, stopped) {
				return true
			}
		}
		return false
	})
}

// TestStopShort: without a descriptor to look at processes, none counts as stopped or absent.
func TestStopShort(t *testing.T) {
	c := shell(t, "sleep 1000 & sleep 1000 & wait")
	eventually(t, "children", func() bool { return len(below(c.Process.Pid)) == 3 })
	restore := need.Descriptors(t, 0)
	f, err := stopProcesses(c.Process.Pid)
	nothing := alone(c.Process.Pid)
	restore()
	if !errors.Is(err, syscall.EMFILE) || nothing {
		t.Fatalf("stopped %v, %v, alone %t", f, err, nothing)
	}
	if f, err = stopProcesses(c.Process.Pid); err != nil {
		t.Fatal(err)
	}
	defer f.Resume()
	restore = need.Descriptors(t, 0)
	held := f.Held()
	restore()
	if held || !f.Held() {
		t.Errorf("held without a descriptor: %t", held)
	}
}
