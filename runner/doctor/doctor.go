// Package doctor implements `demesne check`. It tests which features this machine offers to demesne by using
// them, and suggests a fix for each missing one.
//
// A version number is a poor guide: distributions backport features and disable them, and containers filter
// them. So each probe creates the real object, uses it once and removes it:
//
//	callers                 a socket through which all callers reach the runner
//	user namespace          the runner is in one: does it have the rights of one?
//	id maps                 a file is given to the last mapped id
//	apparmor                Ubuntu's restriction: is it on, and does it apply to the runner?
//	nested user namespace   a child in user, mount, pid, uts, ipc and cgroup namespaces
//	fresh /proc             that child mounts one and finds itself in it as 1
//	hostname                that child sets its hostname
//	idmapped mounts         a tmpfs seen through that child's ids (real root only)
//	overlay                 write, rename and rmdir on the lower, with a tmpfs
//	overlay on disk         the same on the disk with demesne's state
//	network namespace       loopback alone, read back (package netns)
//	read-only /sys          of that namespace
//	egress path             veth, AnyIP, tproxy: a connection arrives (package netns); else a thread gets a supervisor
//	paths                   openat2, or the same by openat (package fsutil)
//	landlock                a thread forbids itself to list / and is then refused
//	seccomp                 a thread forbids itself a system call and is then refused
//	cgroups                 the result of package limits at the runner's start
//
// The process that calls [Run] has live sandboxes, so no probe changes the state of the process. A probe uses a
// thread that ends with it, or a child. No probe leaves a mount, a process or a file behind, and none accesses
// a real network.
//
// The program that calls [Run] must call [Reexec] at the start of main.
package doctor

import (
	"context"
	"time"

	"demesne/runner"
)

// probeTime bounds Run. All probes together take about 20 ms, and up to a hundred times that on a loaded
// machine. Only a probe that hangs reaches the bound.
const probeTime = 5 * time.Second

// group is a set of probes with a shared test. do returns answers in the order of names.
type group struct {
	names []string
	bare  bool // works without a user namespace
	root  bool // concerns real root only
	do    func(context.Context, *Env) []answer
}

// groups lists the probes in output order.
var groups = []group{
	{names: []string{"callers"}, bare: true, do: probeCallers},
	{names: []string{"user namespace", "id maps", "apparmor"}, bare: true, do: probeMaps},
	{names: []string{"nested user namespace", "fresh /proc", "hostname"}, do: probeNested},
	{names: []string{"idmapped mounts"}, root: true, do: probeIDMapped},
	{names: []string{"overlay"}, do: probeOverlay},
	{names: []string{"overlay on disk"}, do: probeOverlayDisk},
	{names: []string{"network namespace", "read-only /sys"}, do: probeNetwork},
	{names: []string{"egress path"}, bare: true, do: probeEgress},
	{names: []string{"paths"}, bare: true, do: probePaths},
	{names: []string{"landlock"}, bare: true, do: probeLandlock},
	{names: []string{"seccomp"}, bare: true, do: probeSeccomp},
	{names: []string{"cgroups"}, bare: true, do: probeLimits},
}

// Run runs all probes concurrently and returns within five seconds, even if a probe hangs. A probe that does
// not apply to this machine has no line.
func Run(ctx context.Context, env Env) []runner.Probe {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	env.Facts = env.facts()
	lines := make([]chan []runner.Probe, len(groups))
	for i, g := range groups {
		lines[i] = make(chan []runner.Probe, 1)
		go runGroup(ctx, g, &env, lines[i])
	}
	var all []runner.Probe
	for i, g := range groups {
		select {
		case l := <-lines[i]:
			all = append(all, l...)
			continue
		case <-ctx.Done():
		}
		select { // if both are ready, prefer the answer
		case l := <-lines[i]:
			all = append(all, l...)
		default:
			all = append(all, g.late(&env, ctx.Err())...)
		}
	}
	return all
}

// runGroup sends the lines of one group to done, once.
func runGroup(ctx context.Context, g group, env *Env, done chan<- []runner.Probe) {
	start := time.Now()
	var answers []answer
	switch {
	case g.root && !env.RealRoot:
	case env.Minimal && !g.bare:
		answers = g.same(answer{status: runner.Missing, why: "needs a user namespace", fix: env.ModeFix})
	default:
		answers = g.do(ctx, env)
	}
	done <- g.lines(answers, time.Since(start))
}

// lines adds names to answers and omits those without a status.
func (g group) lines(answers []answer, took time.Duration) []runner.Probe {
	var all []runner.Probe
	for i, a := range answers {
		if a.status == "" {
			continue
		}
		all = append(all, runner.Probe{
			Name: g.names[i], Status: a.status, Detail: a.detail, Why: a.why, Fix: a.fix,
			MS: float64(took.Microseconds()) / 1000,
		})
	}
	return all
}

// late returns the lines of probes that did not answer in time.
func (g group) late(e *Env, err error) []runner.Probe {
	if g.root && !e.RealRoot {
		return nil
	}
	return g.lines(g.same(untested(err)), probeTime)
}

// untested is the answer of a probe that did not end in time, on a slow or busy machine. It says nothing about the feature.
func untested(err error) answer {
	return answer{runner.Degraded, "not tested", "no answer in time: " + err.Error(), "demesne check   # when the machine is less busy"}
}

// same returns one answer for all probes of g.
func (g group) same(a answer) []answer {
	all := make([]answer, len(g.names))
	for i := range all {
		all[i] = a
	}
	return all
}
