package store

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Process identifies a process uniquely among all that ever ran on this machine (P18). A pid alone can be
// reused.
type Process struct {
	Boot  string `json:"boot_id"` // empty: /proc shows none (ProcSubset=pid)
	PID   int    `json:"pid"`
	Start uint64 `json:"start_time"` // clock ticks after boot, proc_pid_stat(5)
}

// bootID returns the kernel's id of this boot, or an empty one where /proc shows none.
var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return strings.TrimSpace(string(b)), err
})

// Identify returns the identity of the process that has pid now.
func Identify(pid int) (Process, error) {
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	// The command name may contain any bytes, so fields are counted from the last ')'.
	rest := string(stat)
	if i := strings.LastIndex(rest, ") "); i >= 0 {
		rest = rest[i+2:]
	}
	f := strings.Fields(rest)
	if len(f) < 20 {
		return Process{}, errors.New("read stat: too short")
	}
	if f[0] == "Z" || f[0] == "X" { // dead, but its parent has not waited for it
		return Process{}, errors.New("read stat: the process ended")
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return Process{Boot: boot, PID: pid, Start: start}, err
}

// Kill ends the process with SIGKILL, but never another process that has reused its pid. It returns nil if the
// process is already gone.
func (p Process) Kill() error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return nil // no process has this pid
	}
	defer unix.Close(fd)
	if !p.Alive() {
		return nil
	}
	return os.NewSyscallError("pidfd_send_signal", unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

// Alive reports whether the process is still running. An unknown boot is taken for the same one: a later process would
// need the same pid at the same tick after its boot.
func (p Process) Alive() bool {
	now, err := Identify(p.PID)
	if now.Boot == "" || p.Boot == "" {
		now.Boot, p.Boot = "", ""
	}
	return err == nil && now == p
}
