package seccomp

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestInit (P22): no id of PID 1's threads works, and no group or user of PID 1.
func TestInit(t *testing.T) {
	const last = 17
	for _, c := range []struct {
		name string
		call call
		// want is the action with a pid namespace, alone the action without one.
		want, alone action
	}{
		{"limits of PID 1", sys(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, 1<<20), eperm, eperm},
		{"by a pointer of high bits", sys(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, 1<<32), eperm, eperm},
		{"with high bits in the id", sys(unix.SYS_PRLIMIT64, 1|high, unix.RLIMIT_NOFILE, 1<<20), eperm, eperm},
		{"limits of PID 1, asked", sys(unix.SYS_PRLIMIT64, 1, unix.RLIMIT_NOFILE, 0, 1<<20), allow, allow},
		{"by its last thread", sys(unix.SYS_PRLIMIT64, last, unix.RLIMIT_NOFILE, 1<<20), eperm, eperm},
		{"of the first command", sys(unix.SYS_PRLIMIT64, last+1, unix.RLIMIT_NOFILE, 1<<20), allow, eperm},
		{"of itself", sys(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 1<<20), allow, allow},
		{"of itself, with high bits", sys(unix.SYS_PRLIMIT64, high, unix.RLIMIT_NOFILE, 1<<20), allow, allow},
		{"scheduler", sys(unix.SYS_SCHED_SETSCHEDULER, 1), eperm, eperm},
		{"own scheduler", sys(unix.SYS_SCHED_SETSCHEDULER, 0), allow, allow},
		{"parameters", sys(unix.SYS_SCHED_SETPARAM, 2), eperm, eperm},
		{"attributes", sys(unix.SYS_SCHED_SETATTR, 3), eperm, eperm},
		{"processors", sys(unix.SYS_SCHED_SETAFFINITY, 1), eperm, eperm},
		{"processors of the first command", sys(unix.SYS_SCHED_SETAFFINITY, last+1), allow, eperm},
		{"processors, asked", sys(unix.SYS_SCHED_GETAFFINITY, 1), allow, allow},
		{"nice", sys(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1, 19), eperm, eperm},
		{"nice, by group", sys(unix.SYS_SETPRIORITY, unix.PRIO_PGRP, 1, 19), eperm, eperm},
		{"nice, by user", sys(unix.SYS_SETPRIORITY, unix.PRIO_USER, 0, 19), eperm, eperm},
		{"nice, by another user", sys(unix.SYS_SETPRIORITY, unix.PRIO_USER, 1000, 19), eperm, eperm},
		{"own nice", sys(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 19), allow, allow},
		{"own nice, by group", sys(unix.SYS_SETPRIORITY, unix.PRIO_PGRP, 0, 19), allow, allow},
		{"nice of the first command", sys(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, last+1, 19), allow, eperm},
		{"disk", sys(unix.SYS_IOPRIO_SET, ioprioProcess, 1), eperm, eperm},
		{"disk, by group", sys(unix.SYS_IOPRIO_SET, ioprioGroup, 1), eperm, eperm},
		{"disk, by user", sys(unix.SYS_IOPRIO_SET, ioprioUser, 0), eperm, eperm},
		{"own disk", sys(unix.SYS_IOPRIO_SET, ioprioProcess, 0), allow, allow},
		{"another call", sys(unix.SYS_READ, 1), allow, allow},
	} {
		for tid, want := range map[uint32]action{last: c.want, 0: c.alone} {
			prog, err := Init(tid)
			if err != nil {
				t.Fatal(err)
			}
			if got := run(t, prog, auditArch, c.call); got != want {
				t.Errorf("%s, last thread %d: %#x, want %#x", c.name, tid, got, want)
			}
		}
	}
}
