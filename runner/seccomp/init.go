package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Init returns the program that stops a workload from changing the limits and the scheduling of PID 1
// (P22). For these calls the kernel checks only user ids, and PID 1 has the same user id as its
// commands.
//
// The calls take a process or a thread id. The threads of PID 1 are the first tasks of its pid namespace, and
// lastTID is their highest id. No other task ever has an id up to lastTID, because the kernel continues at 300
// after a wrap-around (RESERVED_PIDS). A lastTID of 0 means that the sandbox has no pid namespace. A command
// may then only name itself, as 0.
//
// Init also refuses changes for all processes of a user. Reading remains allowed.
func Init(lastTID uint32) ([]unix.SockFilter, error) {
	prog, err := compile(initRules(lastTID), allow)
	if err != nil {
		return nil, fmt.Errorf("assemble seccomp filter: %w", err)
	}
	return prog, nil
}

const (
	// Not in x/sys: IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP, IOPRIO_WHO_USER.
	ioprioProcess = 1
	ioprioGroup   = 2
	ioprioUser    = 3
)

func initRules(lastTID uint32) []rule {
	refuse := func(call uint32, when ...cond) rule {
		return rule{do: errno(unix.EPERM), when: when, calls: []uint32{call}}
	}
	// init returns the conditions under which argument arg names PID 1 or one of its threads.
	init := func(arg int, and ...cond) []cond {
		when := append([]cond{has(arg, all)}, and...)
		if lastTID != 0 {
			when = append(when, upTo(arg, lastTID))
		}
		return when
	}
	var r []rule
	for _, given := range notNil(2) {
		r = append(r, refuse(unix.SYS_PRLIMIT64, init(0, given)...))
	}
	for _, call := range []uint32{unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR} {
		r = append(r, refuse(call, init(0)...))
	}
	return append(r,
		refuse(unix.SYS_SETPRIORITY, init(1, is(0, all, unix.PRIO_PROCESS))...),
		refuse(unix.SYS_SETPRIORITY, init(1, is(0, all, unix.PRIO_PGRP))...),
		refuse(unix.SYS_SETPRIORITY, is(0, all, unix.PRIO_USER)),
		refuse(unix.SYS_IOPRIO_SET, init(1, is(0, all, ioprioProcess))...),
		refuse(unix.SYS_IOPRIO_SET, init(1, is(0, all, ioprioGroup))...),
		refuse(unix.SYS_IOPRIO_SET, is(0, all, ioprioUser)))
}
