package pid1

import (
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"

	"golang.org/x/sys/unix"
)

// rlimits is what was set so far. Limits belong to a process, and between fork and
// execve a Go program cannot run code of its own in the child; setting them on the
// child afterwards would come too late for its first instructions. So they are PID
// 1's, soft and hard, from before the first command on, and every command inherits
// them. They are the same for all commands of a sandbox; a later, higher value is
// refused by the kernel, a lower one holds from then on.
type rlimits map[int]uint64

// floors are the least values PID 1 can live with, for the limits that apply to it.
// RLIMIT_NPROC has none: see [warm]. RLIMIT_CPU and RLIMIT_AS would end PID 1 itself.
var floors = map[int]uint64{
	unix.RLIMIT_NOFILE: 64,
	unix.RLIMIT_DATA:   96 << 20,
	unix.RLIMIT_STACK:  256 << 10,
	unix.RLIMIT_CPU:    unix.RLIM_INFINITY,
	unix.RLIMIT_AS:     unix.RLIM_INFINITY,
}

// set applies those of limits that are new.
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

// setRlimit sets both limits; above the hard limit that is there already, it is that
// one that holds.
func setRlimit(l pid1api.Rlimit) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(l.Resource, &old); err != nil {
		return err
	}
	v := min(l.Value, old.Max)
	return unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: v, Max: v})
}
