package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEscapeP25RunnerStopped checks that a stopped runner does not block new callers forever (P25). The error
// names its process; callers succeed once it continues.
func TestEscapeP25RunnerStopped(t *testing.T) {
	b := newBox(t)
	id := b.create()
	runner := runners(true)[0]
	freeze(t, runner)
	defer syscall.Kill(runner, syscall.SIGCONT)
	for _, args := range [][]string{{"exec", id, "--", "true"}, {"ls"}, {"run", "--", "true"}} {
		r := b.demesne(args...)
		if r.code != 125 || !strings.Contains(r.stderr, "is stopped") || !strings.Contains(r.stderr, "kill -CONT ") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	syscall.Kill(runner, syscall.SIGCONT)
	b.must("exec", id, "--", "true")
}

// TestOpenReleased checks that a sandbox can be used while a killed runner still has it, as after the end of a bwrap.
func TestOpenReleased(t *testing.T) {
	b := newBox(t)
	id := b.create()
	b.must("exec", id, "-c", "echo kept > f")
	b.must("stop", id)
	dir, err := os.Open(b.dir + "/k/" + id)
	if err == nil {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan result)
	go func() { done <- b.demesne("exec", id, "--", "cat", "f") }()
	time.Sleep(200 * time.Millisecond) // long enough that it finds the lock
	dir.Close()
	if r := <-done; r.stdout != "kept\n" {
		t.Errorf("%+v", r)
	}
}

// freeze stops a process, and returns when each of its threads has stopped: the others continue for a while after the signal.
func freeze(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each thread to stop", func() bool {
		states, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
		for _, path := range states {
			stat, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(stat, []byte(") T ")) {
				return false
			}
		}
		return err == nil && len(states) > 0
	})
}
