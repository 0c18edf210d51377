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

// harden makes PID 1 a bad target for what runs beside it.
func harden() {
	// No ptrace, no core, and /proc/1 belongs to root: escapes.md P6, F14.
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	unix.Umask(0o022)
	noCores()
	// Commands get the descriptors they are given, not what PID 1 inherited or the Go
	// runtime opened (escapes.md F11).
	if unix.CloseRange(socketFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) != nil { // before Linux 5.11
		for fd := socketFD; fd < 4096; fd++ {
			unix.CloseOnExec(fd)
		}
	}
	if os.Getpid() == 1 {
		defaultSignals()
		return
	}
	// A handler for everything, and nobody who listens. Not signal.Ignore: SIG_IGN is
	// inherited through execve, a handler is not. This also takes the SIGSEGV, SIGABRT
	// or SIGQUIT that someone sends; the real ones still end the program.
	//
	// SIGCHLD is left out: nothing listens for it and it would wake a thread each time.
	var all []os.Signal
	for s := unix.SIGHUP; s <= sigMax; s++ {
		if s != unix.SIGCHLD {
			all = append(all, s)
		}
	}
	signal.Notify(make(chan os.Signal), all...)
	// The one that nobody can listen for is inherited as ignored from what make(1) starts:
	// glibc's posix_spawn leaves it so.
	defaultSignal(32)
}

// noCores keeps crashes from leaving a core dump, also where core(5)'s pattern names a program: the kernel starts that as
// root, in the host's namespaces, and lets it read all memory of the process. A limit of 0 bounds files alone;
// 1 is what such a program has itself, to end the recursion (fs/coredump.c), and stops both. A caller whose own hard limit
// is 0 keeps that. The filter refuses to change it afterwards. No limit stops a dump to a socket: the receipt says so.
func noCores() { setRlimit(pid1api.Rlimit{Resource: unix.RLIMIT_CORE, Value: 1}) }

// perThreadSyscall is the signal by which the Go runtime has all threads make a call.
const perThreadSyscall = syscall.Signal(33)

// defaultSignals takes the Go runtime's handlers away again. What is at its default the
// kernel keeps from the init of a pid namespace, whoever inside it sends what
// (pid_namespaces(7)); only a fault of our own still ends us. signal.Notify would do,
// at the price of 600 futex calls.
//
// All of them: that protection does not hold while the main thread has a signal
// blocked, as it has all in a handler, and with a single handler left a command could
// send that signal and then a fatal one. SIGURG at its default is ignored; the runtime
// then preempts goroutines when they call something. perThreadSyscall stays until
// setup is done with it, before the first command.
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

// firstReused is the lowest id that the kernel gives a second time in a pid namespace (RESERVED_PIDS in kernel/pid.c).
const firstReused = 300

// protectInit keeps what this thread starts from setting the limits and the scheduling of PID 1. All
// of its threads must be there.
func protectInit() error {
	prog, err := seccomp.Init(lastThread())
	if err != nil {
		return err
	}
	return seccomp.LoadThread(prog)
}

// lastThread is the highest id of a thread of ours, and 0 outside a pid namespace of our own.
func lastThread() (last uint32) {
	pid := os.Getpid()
	if pid != 1 {
		return 0
	}
	if last := lastListed(); last != 0 {
		return last
	}
	for tid := 1; tid < firstReused; tid++ {
		// Landlock may refuse the signal to a thread of another domain: that one is there.
		if err := unix.Tgkill(pid, tid, 0); !is(err, unix.ESRCH) {
			last = uint32(tid)
		}
	}
	return last
}

// lastListed is lastThread by /proc, which takes a tenth of the time. It is 0 where /proc is another namespace's: there we are not 1.
func lastListed() (last uint32) {
	var self [8]byte
	if n, err := unix.Readlink("/proc/self", self[:]); err != nil || string(self[:n]) != "1" {
		return 0
	}
	// Not os.ReadDir, which would start the poller.
	fd, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	// Far more than the threads of PID 1 need: 24 bytes each.
	buf := make([]byte, 32<<10)
	n, err := unix.Getdents(fd, buf)
	if err != nil {
		return 0
	}
	_, _, names := unix.ParseDirent(buf[:n], -1, nil)
	for _, name := range names {
		if tid, err := strconv.ParseUint(name, 10, 32); err == nil {
			last = max(last, uint32(tid))
		}
	}
	return last
}

// spareThreads is more than goroutines of PID 1 can block in system calls at once.
const spareThreads = 4

// warm has the Go runtime make its threads now, and closes done when they are there. It keeps
// them, and needs no new one later, when there may be none to have: a thread that cannot be made
// is fatal to it.
func warm(done chan<- struct{}) {
	var ready, release sync.WaitGroup
	ready.Add(spareThreads)
	release.Add(1)
	for range spareThreads {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // gives the thread back; ending locked would end it
			ready.Done()
			release.Wait()
		}()
	}
	ready.Wait()
	release.Done()
	close(done)
}
