package userns

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
)

// Become is the Go half of process C in the second diagram: it replaces itself with the program whose arguments are
// argv. It returns only on failure, with exit code 125. It must run on the main thread, because execve keeps that
// thread's settings.
func Become(argv []string) int {
	ctl, err1 := strconv.Atoi(os.Getenv(EnvControl))
	program, err2 := strconv.Atoi(os.Getenv(EnvProgram))
	if err1 != nil || err2 != nil || len(argv) == 0 {
		fmt.Fprintln(os.Stderr, "demesne-runner: enter: demesne starts this program; do not start it directly")
		return 125
	}
	for _, name := range []string{EnvControl, EnvMode, EnvUserns, EnvProgram} {
		os.Unsetenv(name)
	}
	unix.CloseOnExec(program)
	step, err := become(ctl, program, argv)
	errno, _ := err.(syscall.Errno)
	unix.Write(ctl, []byte{'e', byte(step), byte(errno)})
	return 125
}

// become returns the step that failed.
func become(ctl, program int, argv []string) (failed Step, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return StepPrivate, err
	}
	// This follows the id change, which clears the setting (PR_SET_PDEATHSIG, prctl(2)). A caller that died before
	// this point does not read the 'd'.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return StepExecute, err
	}
	if _, err := unix.Write(ctl, []byte{'d'}); err != nil {
		return StepExecute, err
	}
	return StepExecute, syscall.Exec(fsutil.FDPath(program), argv, os.Environ())
}
