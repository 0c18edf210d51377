package engine

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"demesne/runner/userns"
)

// Enter is what is left to do of [client.Enter] in the process that will be the
// program: argv is the program's own. It returns only with an exit code. It must run
// on the main thread, whose settings execve keeps.
func Enter(argv []string) int {
	ctl, err1 := strconv.Atoi(os.Getenv(userns.EnvControl))
	program, err2 := strconv.Atoi(os.Getenv(userns.EnvProgram))
	if err1 != nil || err2 != nil || len(argv) == 0 {
		fmt.Fprintln(os.Stderr, "demesne-runner: enter: to be started by demesne, not by hand")
		return 125
	}
	for _, name := range []string{userns.EnvControl, userns.EnvMode, userns.EnvUserns, userns.EnvProgram} {
		os.Unsetenv(name)
	}
	unix.CloseOnExec(program)
	step, err := become(ctl, program, argv)
	errno, _ := err.(syscall.Errno)
	unix.Write(ctl, []byte{'e', step, byte(errno)})
	return 125
}

// become returns the step of [userns.Steps] that failed.
func become(ctl, program int, argv []string) (step byte, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 8, err
	}
	// After the ids were changed, which clears it. A caller that died before this
	// moment does not hear the 'd'.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return 9, err
	}
	if _, err := unix.Write(ctl, []byte{'d'}); err != nil {
		return 9, err
	}
	return 9, syscall.Exec("/proc/self/fd/"+strconv.Itoa(program), argv, os.Environ())
}
