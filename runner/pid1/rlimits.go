package pid1

import (
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// rlimits are the limits set so far. Limits belong to a process. Between fork and execve a Go program cannot
// run its own code in the child. Setting limits on the child afterwards would miss its first instructions. So
// PID 1 sets them on itself, soft and hard, before the first command, and every command inherits them. They are
// the same for all commands of a sandbox. The kernel refuses a later, higher value; a lower one applies from
// then on.
type rlimits map[int]uint64

// floors are the minimum values PID 1 needs, for the limits that apply to it. RLIMIT_NPROC has no minimum: see
// [warm]. RLIMIT_CPU and RLIMIT_AS would end PID 1 itself.
var floors = map[int]uint64{
	unix.RLIMIT_NOFILE: 64,
	unix.RLIMIT_DATA:   96 << 20,
	unix.RLIMIT_STACK:  256 << 10,
	unix.RLIMIT_CPU:    unix.RLIM_INFINITY,
	unix.RLIMIT_AS:     unix.RLIM_INFINITY,
}

// set applies the limits that are new or changed.
func (r *rlimits) set(limits []pid1api.Rlimit) error {
	if *r == nil {
		*r = rlimits{}
	}
	for _, l := range limits {
		if v, ok := (*r)[l.Resource]; ok && v == l.Value {
			continue
		}
		if l.Value < floors[l.Resource] {
			return ipc.Errorf(ipc.CodeInvalid, "limit resource %d: %d is less than PID 1 needs", l.Resource, l.Value)
		}
		if err := setRlimit(l); err != nil {
			return ipc.Errorf(ipc.CodeInternal, "limit resource %d to %d: %w", l.Resource, l.Value, err)
		}
		(*r)[l.Resource] = l.Value
	}
	return nil
}

// setRlimit sets the soft and the hard limit, at most to the current hard limit.
func setRlimit(l pid1api.Rlimit) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(l.Resource, &old); err != nil {
		return err
	}
	v := min(l.Value, old.Max)
	return unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: v, Max: v})
}
