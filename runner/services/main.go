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

// supervisorKind is the word for the supervisor's own process.
const supervisorKind = "supervise"

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
	if args[3] == supervisorKind {
		return beside(args[1], uint16(port))
	}
	pid, err := launch(program, args)
	if err != nil {
		return fail(exitFailed, err)
	}
	if len(args) == 4 {
		return 0
	}
	if args[3] == Keep {
		return refused(args[4], syscall.Exec(find(args[4]), args[4:], os.Environ()))
	}
	signals := make(chan os.Signal, 16) // the whole process group gets them: the command decides
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	code := run(args[4:])
	if unix.Kill(pid, unix.SIGTERM) == nil {
		wait(pid)
	}
	return code
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

// run executes a command as a child, in this session, and returns its exit code.
func run(argv []string) int {
	pid, err := syscall.ForkExec(find(argv[0]), argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return refused(argv[0], err)
	}
	status := wait(pid)
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

func wait(pid int) (status unix.WaitStatus) {
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			return status
		}
	}
}
