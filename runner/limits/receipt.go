package limits

import (
	"fmt"
	"math"
	"strconv"

	"demesne/runner"
	"demesne/runner/limits/cgroup"
)

// Receipt reports the mechanism that enforces each limit. It reads the values of cgroups from the kernel; the
// values of rlimits are those that [Group.Rlimits] returns. Call it after Add, with the resources that will be
// watched. The disk watch may change the entry for the disk, which only a later call shows.
func (g *Group) Receipt(what Watched) []runner.LimitReceipt {
	g.mu.Lock()
	defer g.mu.Unlock()
	return []runner.LimitReceipt{g.memory(), g.cpus(), g.pids(what.PIDs || g.several), g.disk(what.Dirs)}
}

// fromGroup returns the receipt of a limit that a cgroup enforces.
func (g *Group) fromGroup(limit string) (r runner.LimitReceipt, ok bool) {
	s, k := g.seatOf(limit)
	if s == nil {
		return r, false
	}
	return readBack(s.outer, k), true
}

func readBack(d *cgroup.Dir, k *setting) runner.LimitReceipt {
	r := runner.LimitReceipt{Name: k.limit, Mechanism: k.mechanism, Status: runner.Held}
	v, err := k.read(d)
	if r.Value = v; err != nil {
		r.Value, r.Status, r.Why = "none", runner.Missing, err.Error()
	}
	return r
}

func off(limit string) runner.LimitReceipt {
	return runner.LimitReceipt{Name: limit, Value: "none", Status: runner.Off}
}

// lack adds the reason why no cgroup enforces the limit, and a fix. g.mu is held.
func (g *Group) lack(r runner.LimitReceipt, controller string) runner.LimitReceipt {
	r.Why = g.why[r.Name]
	if r.Why == "" {
		r.Why = g.host.why(controller)
	}
	r.Fix = fix(lookAround())
	return r
}

func (g *Group) memory() runner.LimitReceipt {
	if g.want.Memory == None {
		return off("memory")
	}
	if r, ok := g.fromGroup("memory"); ok {
		return r
	}
	return g.lack(runner.LimitReceipt{
		Name: "memory", Value: strconv.FormatInt(g.want.Memory, 10),
		Mechanism: "watchdog, RLIMIT_DATA per process", Status: runner.Degraded,
	}, "memory")
}

func (g *Group) cpus() runner.LimitReceipt {
	if g.want.CPUs == None {
		return off("cpus")
	}
	if r, ok := g.fromGroup("cpus"); ok {
		return r
	}
	r := runner.LimitReceipt{Name: "cpus", Value: strconv.Itoa(g.affinity), Mechanism: "sched_setaffinity", Status: runner.Degraded}
	if g.affinity == 0 {
		r.Value, r.Mechanism, r.Status = "none", "", runner.Missing
	}
	r = g.lack(r, "cpu")
	if g.affinity > 0 && float64(g.affinity) < math.Ceil(g.want.CPUs) {
		r.Why = fmt.Sprintf("the runner itself has %d processors", g.affinity)
	}
	return r
}

// pids returns the receipt of the process limit. RLIMIT_NPROC is as strong as a cgroup if the kernel counts per
// user namespace, and all processes of the sandbox are of one user that is not the kernel's uid 0. Otherwise the watchdog
// counts processes.
func (g *Group) pids(several bool) runner.LimitReceipt {
	if g.want.PIDs == None {
		return off("pids")
	}
	if r, ok := g.fromGroup("pids"); ok {
		return r
	}
	r := runner.LimitReceipt{
		Name: "pids", Value: strconv.FormatInt(g.want.PIDs, 10),
		Mechanism: "RLIMIT_NPROC", Status: runner.Held,
	}
	why := ""
	switch {
	case g.host.exempts:
		r.Mechanism = "RLIMIT_NPROC for users other than the kernel's uid 0, a watchdog for all"
		why = "the kernel exempts its uid 0 from RLIMIT_NPROC"
	case several:
		r.Mechanism = "RLIMIT_NPROC for each user, a watchdog for all"
		why = "processes may run as several users, each with its own RLIMIT_NPROC"
	case !countsPerNamespace():
		why = "before Linux 5.14 it counts all processes of the user"
	default:
		return r
	}
	r = g.lack(r, "pids")
	r.Status, r.Why = runner.Degraded, why+"; "+r.Why
	return r
}

// disk returns the receipt of the disk limit. The kernel enforces it on a tmpfs of that size and on a file
// system that is no larger. Elsewhere the watchdog polls and reacts late.
func (g *Group) disk(dirs []Written) runner.LimitReceipt {
	if g.want.Disk == None {
		return off("disk")
	}
	r := runner.LimitReceipt{
		Name: "disk", Value: strconv.FormatInt(g.want.Disk, 10),
		Mechanism: "tmpfs size, RLIMIT_FSIZE", Status: runner.Held,
	}
	for _, d := range dirs {
		if s, err := spaceOf(d.Dir); err == nil && s.total <= g.want.Disk {
			r.Mechanism = "tmpfs size, size of the file system, RLIMIT_FSIZE"
			continue
		}
		r.Mechanism = "tmpfs size; watchdog on /out and /workspace, RLIMIT_FSIZE"
		r.Status, r.Why = runner.Degraded, "writes to the caller's disk are counted only every 200 ms or less often"
		r.Fix = fmt.Sprintf("mkdir DIR && sudo mount -t tmpfs -o size=%d,mode=1777 tmpfs DIR   # then use --out DIR/out", g.want.Disk)
		break
	}
	if g.diskWhy != "" {
		r.Status, r.Why = runner.Degraded, g.diskWhy
	}
	return r
}
