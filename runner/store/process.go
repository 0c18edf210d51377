package store

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Process tells a process from any other there ever was on this machine
// (escapes.md P18): a pid alone is used again.
type Process struct {
	Boot  string `json:"boot_id"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start_time"` // clock ticks after boot, proc_pid_stat(5)
}

// Identify reads who pid is now.
func Identify(pid int) (Process, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The command's name may contain anything; fields count from the last ')'.
	rest := string(stat)
	if i := strings.LastIndex(rest, ") "); i >= 0 {
		rest = rest[i+2:]
	}
	f := strings.Fields(rest)
	if len(f) < 20 {
		return Process{}, errors.New("read stat: too short")
	}
	if f[0] == "Z" || f[0] == "X" { // only its parent has not noticed yet
		return Process{}, errors.New("read stat: it is dead")
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return Process{Boot: strings.TrimSpace(string(boot)), PID: pid, Start: start}, err
}

// Kill ends it with SIGKILL, and nobody that has its pid since. That it is gone already is no error.
func (p Process) Kill() error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // no process has it
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

// Alive says whether it still is.
func (p Process) Alive() bool {
	now, err := Identify(p.PID)
	return err == nil && now == p
}
