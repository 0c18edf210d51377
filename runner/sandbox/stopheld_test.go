package sandbox

import (
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestContinued is the process that TestHeld runs below its shell. It arranges to be continued every 200
// milliseconds, even when stopped, and writes.
func TestContinued(t *testing.T) {
	if os.Getenv("DEMESNE_RESTLESS") == "" {
		return
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGCONT) // an ignored signal would let the timer fire only once
	event := struct {
		value        uint64
		signal, kind int32
		_            [48]byte
	}{signal: int32(unix.SIGCONT)} // SIGEV_SIGNAL is 0
	var id int32
	unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_REALTIME, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
	every := unix.NsecToTimespec(int64(200 * time.Millisecond))
	spec := [2]unix.Timespec{every, every}
	unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	for f, _ := os.Create("beat"); ; time.Sleep(time.Millisecond) {
		f.WriteString("x")
	}
}

// TestHeld: Held is true for processes that remain stopped and false for a process that wrote meanwhile.
func TestHeld(t *testing.T) {
	calm := shell(t, "sleep 1000 & sleep 1000 & wait")
	eventually(t, "two children", func() bool { return len(below(calm.Process.Pid)) == 3 })
	f, err := stopProcesses(calm.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Resume()
	time.Sleep(20 * time.Millisecond)
	if !f.Held() {
		t.Error("sleepers did not hold still")
	}

	t.Setenv("DEMESNE_RESTLESS", "1")
	c := shell(t, os.Args[0]+" -test.run '^TestContinued$'")
	beat := filepath.Join(c.Dir, "beat")
	eventually(t, "a beat", func() bool { return size(beat) > 0 })
	for range 5 { // each Pause may find it running
		f, err := stopProcesses(c.Process.Pid)
		if err != nil {
			continue
		}
		before := size(beat)
		eventually(t, "the next beat", func() bool { return size(beat) > before })
		if f.Held() {
			t.Error("what wrote held still")
		}
		f.Resume()
	}
}
