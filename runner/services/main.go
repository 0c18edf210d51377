package services

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Verb is the first argument of demesne-init for this package.
const Verb = "services"

// The third argument says how long services live. The arguments of demesne-init are Verb, a directory, a port or 0, one of
// these words, and the command that follows when the services are ready.
const (
	Once = "once" // until the command ends
	Keep = "keep" // until the sandbox stops: they are started once until then. The command may be missing
)

// The words of the processes that this package starts itself.
const (
	supervisorKind = "supervise"
	heldKind       = "held" // the process that becomes the command
)

// Exit codes are a shell's.
const (
	exitFailed   = 125
	exitNoAccess = 126
	exitNotFound = 127
)

// Main executes the arguments of demesne-init, whose path program is, and returns the exit code.
func Main(program string, args []string) int {
	if len(args) < 4 {
		return fail(exitFailed, errors.New("arguments are missing"))
	}
	port, err := strconv.ParseUint(args[2], 10, 16)
	if err != nil {
		return fail(exitFailed, err)
	}
	switch argv := args[4:]; {
	case args[3] == supervisorKind:
		return beside(args[1], uint16(port))
	case args[3] == heldKind:
		return held(argv)
	case args[3] == Once && len(argv) > 0:
		return once(program, args)
	default:
		if _, err := launch(program, args); err != nil {
			return fail(exitFailed, err)
		}
		if len(argv) == 0 {
			return 0
		}
		return become(argv)
	}
}

func fail(code int, err error) int {
	fmt.Fprintf(os.Stderr, "demesne: services: %v\n", err)
	return code
}

// launch starts the supervisor, and waits until the services are ready.
func launch(program string, args []string) (pid int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	argv := []string{program, args[0], args[1], args[2], supervisorKind}
	pid, err = syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	w.Close()
	if err != nil {
		return 0, err
	}
	said, _ := io.ReadAll(io.LimitReader(r, 4<<10))
	switch text := string(said); {
	case text == isReady:
		return pid, nil
	case text == "":
		return 0, errors.New("the supervisor has ended")
	default:
		return 0, errors.New(text)
	}
}

const isReady = "ready"

// beside is the supervisor's process. It answers on descriptor 3. Only one runs at a time: the others' callers wait for
// the port.
func beside(dir string, port uint16) int {
	to := os.NewFile(3, "answer")
	unix.CloseOnExec(3)
	ready := func(err error) {
		text := isReady
		if err != nil {
			text = err.Error()
		}
		to.WriteString(text)
		to.Close()
	}
	if err := os.MkdirAll(Logs, 0o700); err != nil {
		ready(err)
		return 1
	}
	lock, err := os.OpenFile(filepath.Join(Logs, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil && unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		ready(await(port))
		return 0
	}
	if err == nil {
		err = supervise(dir, port, ready)
	}
	if err != nil {
		ready(err)
		return 1
	}
	return 0
}

// find returns the path of a program: of its name, or below a directory of PATH.
func find(name string) string {
	if !strings.Contains(name, "/") {
		for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
			if path := filepath.Join(dir, name); executable(path) {
				return path
			}
		}
	}
	return name
}

// refused reports a command that could not be executed, with the exit codes of a shell.
func refused(name string, err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return fail(exitNotFound, fmt.Errorf("execute %q: not found", name))
	}
	return fail(exitNoAccess, fmt.Errorf("execute %q: %w", name, err))
}

// become executes a command in place of this process. It returns only if that fails.
func become(argv []string) (code int) {
	return refused(argv[0], syscall.Exec(find(argv[0]), argv, os.Environ()))
}

// once executes a command as a child in this session, with services until it ends, and returns its exit code. The command's
// process is there before the first service is: a service that forks without end cannot keep it from starting. From then
// on nothing here starts a thread, which such a service would prevent too.
func once(program string, args []string) int {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fail(exitFailed, err)
	}
	argv := append([]string{program, args[0], args[1], args[2], heldKind}, args[4:]...)
	command, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2, uintptr(ends[1])}})
	unix.Close(ends[1])
	if err != nil {
		return fail(exitFailed, err)
	}
	answer(ends[0])
	supervisor, err := launch(program, args)
	if err != nil {
		unix.Close(ends[0])
		wait(command)
		return fail(exitFailed, err)
	}
	// The whole process group gets these: the command decides.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	unix.Write(ends[0], []byte{0})
	status := wait(command)
	if unix.Kill(supervisor, unix.SIGTERM) == nil {
		wait(supervisor)
	}
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// held is the process that becomes the command, as soon as its parent allows it on descriptor 3.
func held(argv []string) (code int) {
	unix.CloseOnExec(3)
	unix.Write(3, []byte{0})
	if !answer(3) {
		return exitFailed
	}
	return become(argv)
}

// answer waits for a byte of the other process, and reports whether it came.
func answer(fd int) bool {
	for {
		if n, err := unix.Read(fd, make([]byte, 1)); err != unix.EINTR {
			return n == 1
		}
	}
}

func wait(pid int) (status unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			return status
		}
	}
}
