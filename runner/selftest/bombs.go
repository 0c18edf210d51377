package selftest

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A bomb takes so much at most, for so long. The limits of most sandboxes are below these numbers; a machine with spare memory
// serves them.
const (
	bombProcesses = 2100 // above the default of podman, and of demesne
	bombMemory    = 512 << 20
	bombTime      = 20 * time.Second
	bombLimit     = "256m"          // --memory of demesne's sandbox, whose default is half of the machine's
	holdTime      = 2 * time.Second // a limit may be enforced by looking
	bombSpare     = 2 << 30
)

// bombs are probes that may end their sandbox. Each has a sandbox of its own.
func bombs() []probe {
	all := []probe{
		{id: "P11", title: fmt.Sprintf("start %d processes", bombProcesses), try: func(*facts) error { return forks() }},
		{id: "P11", title: fmt.Sprintf("take %d MiB of memory", bombMemory>>20), try: func(*facts) error { return fills() }},
	}
	for i := range all {
		try := all[i].try
		all[i].apart = true
		all[i].try = func(f *facts) error {
			if f.Scarce {
				return absent(fmt.Sprintf("this machine has less than %d GiB of memory to spare", bombSpare>>30))
			}
			return try(f)
		}
	}
	return all
}

// scarce reports whether a bomb could harm other programs of this machine.
func scarce() bool {
	text, err := os.ReadFile("/proc/meminfo")
	_, rest, found := strings.Cut(string(text), "\nMemAvailable:")
	fields := strings.Fields(rest)
	if err != nil || !found || len(fields) == 0 {
		return true
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return err != nil || kib<<10 < bombSpare
}

// forks starts processes that only sleep. They end with this one.
func forks() error {
	runtime.LockOSThread() // PR_SET_PDEATHSIG follows the thread
	var children []int
	defer func() {
		for _, pid := range children {
			unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range children {
			unix.Wait4(pid, nil, 0, nil)
		}
	}()
	for end := time.Now().Add(bombTime); len(children) < bombProcesses; {
		if time.Now().After(end) {
			return absent(fmt.Sprintf("this machine started only %d in %v", len(children), bombTime))
		}
		pid, errno := fork()
		if errno != 0 {
			return fmt.Errorf("fork: %w after %d processes", errno, len(children))
		}
		children = append(children, pid)
	}
	return nil
}

// fork makes a process that sleeps for bombTime, or until its parent ends. It makes raw calls only: of the threads of the
// runtime it has one.
//
//go:norace
func fork() (int, unix.Errno) {
	sleep := unix.NsecToTimespec(int64(bombTime))
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || pid != 0 {
		return int(pid), errno
	}
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0, 0)
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&sleep)), 0, 0)
	for {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// fills writes to memory, and holds it.
func fills() error {
	const step = 16 << 20
	for taken := 0; taken < bombMemory; taken += step {
		part, err := unix.Mmap(-1, 0, step, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("mmap: %w after %d MiB", err, taken>>20)
		}
		for i := 0; i < step; i += os.Getpagesize() {
			part[i] = 1
		}
	}
	time.Sleep(holdTime)
	return nil
}
