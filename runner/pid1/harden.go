package pid1

import (
	"math"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"demesne/runner/pid1/pid1api"
	"demesne/runner/seccomp"

	"golang.org/x/sys/unix"
)

// harden protects PID 1 from the processes beside it.
func harden() {
	// No ptrace, no core dump, and /proc/1 belongs to root: P6, F14.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Umask(0o022)
	noCores()
	// Commands get only the descriptors passed to them, none that PID 1 inherited or the Go runtime opened
	// (F11).
	if unix.CloseRange(socketFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		for fd := socketFD; fd < 4096; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	if os.Getpid() == 1 {
		defaultSignals()
		return
	}
	// Install a handler for every signal, without a reader. signal.Ignore would not do: execve keeps SIG_IGN
	// but resets handlers. This also catches a SIGSEGV, SIGABRT or SIGQUIT that another process sends; real
	// faults still end the program.
	//
	// SIGCHLD is left out: it has no reader, and each one would wake a thread.
	var all []os.Signal
	for s := unix.SIGHUP; s <= sigMax; s++ {
		if s != unix.SIGCHLD {
			all = append(all, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), all...)
	// Signal 32 cannot be caught by signal.Notify, and processes started by make(1) inherit it as ignored:
	// glibc's posix_spawn leaves it so.
	defaultSignal(32)
}

// noCores prevents core dumps of crashed commands, even where the pattern of core(5) names a program. The
// kernel starts that program as root in the host's namespaces and lets it read all memory of the process. A
// limit of 0 bounds only core files. A limit of 1 stops both: the kernel sets it for the program itself, to end
// the recursion (fs/coredump.c).
//
// A caller whose own hard limit is 0 keeps 0. The filter later refuses changes of the limit. No limit stops a
// dump to a socket; the receipt reports that case.
func noCores() { setRlimit(pid1api.Rlimit{Resource: unix.RLIMIT_CORE, Value: 1}) }

// perThreadSyscall is the signal with which the Go runtime runs a system call on all threads.
const perThreadSyscall = syscall.Signal(33)

// defaultSignals removes the Go runtime's signal handlers. The kernel does not deliver a signal with the
// default disposition to the init of a pid namespace if the sender is inside (pid_namespaces(7)). Only a fault
// in PID 1 itself still ends it. signal.Notify would also work, at the cost of 600 futex calls.
//
// It must reset all of them. The protection does not hold while the main thread blocks a signal, and a handler
// blocks all signals. With a single handler left, a command could send its signal and then a fatal one. SIGURG
// is ignored by default, so the runtime then preempts goroutines only at function calls. perThreadSyscall
// remains until setup no longer needs it, before the first command.
func defaultSignals() {
	for s := unix.SIGHUP; s <= sigMax; s++ {
		if s != perThreadSyscall {
			defaultSignal(s)
		}
	}
}

func defaultSignal(s syscall.Signal) {
	var dfl [4]uint64 // struct sigaction, all zero: SIG_DFL
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0)
}

const sigMax = syscall.Signal(64) // SIGRTMAX

// firstReused is the lowest id that the kernel reuses in a pid namespace (RESERVED_PIDS in kernel/pid.c).
const firstReused = 300

// protectInit stops processes started by this thread from setting the limits and the scheduling of PID 1. Call
// it when all threads of PID 1 exist.
func protectInit() error {
	prog, err := seccomp.Init(lastThread())
	if err != nil {
		return err
	}
	return seccomp.LoadThread(prog)
}

// lastThread returns the highest thread id of PID 1, or 0 outside a sandbox's own pid namespace. It waits for
// the threads that the Go runtime has asked another thread to create and that do not exist yet.
func lastThread() uint32 {
	pid := os.Getpid()
	if pid != 1 {
		return 0
	}
	for {
		n, last := listedThreads()
		if n == 0 {
			n, last = signalledThreads(pid)
		}
		if planned, _ := runtime.ThreadCreateProfile(nil); n >= planned {
			return last
		}
		runtime.Gosched()
	}
}

// signalledThreads counts the threads of process pid and returns the highest id.
func signalledThreads(pid int) (n int, last uint32) {
	for tid := 1; tid < firstReused; tid++ {
		// If Landlock refuses the signal to a thread of another domain, the thread exists.
		if err := unix.Tgkill(pid, tid, 0); !is(err, unix.ESRCH) {
			n, last = n+1, uint32(tid)
		}
	}
	return n, last
}

// listedThreads does the work of signalledThreads through /proc, in a tenth of the time. It returns 0 if /proc
// belongs to another pid namespace, where this process does not have id 1.
func listedThreads() (n int, last uint32) {
	var self [8]byte
	if n, err := unix.Readlink("/proc/self", self[:]); err != nil || string(self[:n]) != "1" {
		return 0, 0
	}
	// os.ReadDir would start the poller.
	fd, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0
	}
	defer unix.Close(fd)
	// Far more than PID 1's threads need: 24 bytes each. More would make the stack grow, which stays large.
	buf := make([]byte, 4<<10)
	size, err := unix.Getdents(fd, buf)
	if err != nil {
		return 0, 0
	}
	_, _, names := unix.ParseDirent(buf[:size], -1, nil)
	for _, name := range names {
		if tid, err := strconv.ParseUint(name, 10, 32); err == nil {
			n, last = n+1, max(last, uint32(tid))
		}
	}
	return n, last
}

// spareThreads exceeds the number of goroutines of PID 1 that can block in system calls at once.
const spareThreads = 4

// warm makes the Go runtime create its threads now, and closes done when they exist. The runtime keeps them and
// needs no new thread later, when a limit may forbid one. A failure to create a thread is fatal to the runtime.
func warm(done chan<- struct{}) {
	var ready, release, returned sync.WaitGroup
	ready.Add(spareThreads)
	release.Add(1)
	for range spareThreads {
		returned.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // returns the thread; a goroutine that ends locked ends its thread
			ready.Done()
			release.Wait()
		})
	}
	ready.Wait()
	release.Done()
	// While a goroutine still holds its thread, the runtime may create one more to run another goroutine.
	returned.Wait()
	close(done)
}
