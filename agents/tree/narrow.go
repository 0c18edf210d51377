package tree

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/runner"
)

// narrow returns the egress mode of a child that asks for mode and domains: at most what the agent itself has. A mode
// that the child did not ask for is only a default, and becomes none where it is too much.
func (n *node) narrow(mode string, domains []string, asked bool) (string, error) {
	mode = cmp.Or(mode, runner.NoEgress)
	known := runner.ClosedModes()
	switch {
	case mode == runner.OpenEgress:
		return "", n.offered().RefuseOpen()
	case !slices.Contains(known, mode):
		return "", fmt.Errorf("egress mode %q is not in the allowlist (%s)", mode, strings.Join(append(known, runner.OpenEgress), ", "))
	case !asked && n.reach().permits(reach{mode: mode}) != nil:
		mode = runner.NoEgress
	}
	if err := n.reach().permits(reach{mode, domains}); err != nil {
		return "", err
	}
	return mode, nil
}

// Bounds of one tree, against agents that start agents without end. Budgets are the finer means.
const (
	maxDepth = 8  // of a child
	maxAlive = 64 // agents at once
)

// mayStart returns why n may not start another agent.
func (n *node) mayStart() error {
	switch {
	case n.depth >= maxDepth:
		return fmt.Errorf("agents can be nested at most %d deep", maxDepth)
	case n.tree.alive.Load() >= maxAlive:
		return fmt.Errorf("%d agents of this task run already: wait for one of them", maxAlive)
	}
	return nil
}

// narrowLimits returns the limits of a child: those that it asks for, and at most its parent's. A limit of 0 is the
// default, and a negative one no limit.
func narrowLimits(asked, parent runner.Limits) runner.Limits {
	usual := runner.Limits{Memory: halfMemory(), PIDs: runner.DefaultPIDs, Disk: runner.DefaultDisk}
	return runner.Limits{
		Memory: least(asked.Memory, parent.Memory, usual.Memory), CPUs: least(asked.CPUs, parent.CPUs, -1),
		PIDs: least(asked.PIDs, parent.PIDs, usual.PIDs), Disk: least(asked.Disk, parent.Disk, usual.Disk),
	}
}

// least returns the narrower of two limits. usual is the default.
func least[T int64 | float64](asked, parent, usual T) T {
	bound := parent
	if bound == 0 {
		bound = usual
	}
	switch {
	case asked == 0: // as the parent has it
		return parent
	case bound < 0 || asked > 0 && asked <= bound:
		return asked
	}
	return parent
}

// halfMemory is the runner's default for memory, in bytes; 0 if it cannot be read.
func halfMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit) / 2
}
