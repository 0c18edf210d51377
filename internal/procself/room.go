package procself

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Go reserves address space at its start, and each program has some threads: demesne's programs need so much of this process's limits.
const (
	addressSpace = 3 << 30
	threads      = 48
	manyThreads  = 1 << 13 // a limit above it is not counted: it would take longer than a run
)

// Room returns an error if the limits of this process are too small for demesne's programs. The runtime of Go would end one of them
// with a dump of its threads.
func Room() error {
	var as, nproc unix.Rlimit
	if err := errors.Join(unix.Getrlimit(unix.RLIMIT_AS, &as), unix.Getrlimit(unix.RLIMIT_NPROC, &nproc)); err != nil {
		return nil
	}
	used := 0
	if os.Getuid() != 0 && nproc.Cur < manyThreads { // no limit holds for the kernel's uid 0
		used = ownThreads(os.Getuid())
	}
	return room(as.Cur, nproc.Cur, used)
}

// room decides for limits, and for the threads that the user has. No threads: they are not counted.
func room(as, nproc uint64, used int) error {
	switch {
	case as < addressSpace:
		return fmt.Errorf("the limit of address space (ulimit -v) is %d MiB, and demesne's programs need %d MiB", as>>20, addressSpace>>20)
	case used > 0 && uint64(used+threads) > nproc:
		return fmt.Errorf("the limit of processes (ulimit -u) is %d, %d are in use, and demesne's programs need %d", nproc, used, threads)
	}
	return nil
}

// ownThreads counts the threads of a user's processes.
func ownThreads(uid int) (n int) {
	root, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer root.Close()
	names, _ := root.Readdirnames(-1)
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		status, _ := os.ReadFile("/proc/" + name + "/status") // none: it ended
		if field(status, "Uid:") == uid {
			n += field(status, "Threads:")
		}
	}
	return n
}

// field returns the first number after a name of /proc/PID/status, or -1.
func field(status []byte, name string) int {
	_, rest, found := bytes.Cut(status, []byte("\n"+name))
	if words := bytes.Fields(rest); found && len(words) > 0 {
		if n, err := strconv.Atoi(string(words[0])); err == nil {
			return n
		}
	}
	return -1
}
