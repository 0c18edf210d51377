// Package probe is `demesne check`: it finds out what this machine lets demesne do,
// by doing it, and says what to type where the answer is no.
//
// A version number says little: distributions patch features in and lock them
// away, containers filter them. So each probe makes the real thing, uses it once
// and takes it down again:
//
//	user namespace          the runner is in one: has it the rights that go with it?
//	id maps                 a file is given to the last id that is mapped
//	apparmor                Ubuntu's restriction: is it on, and is it on us?
//	nested user namespace   a child in user, mount, pid, uts, ipc and cgroup namespaces
//	fresh /proc             that child mounts one and finds itself in it as 1
//	hostname                that child names itself
//	idmapped mounts         a tmpfs seen through that child's ids (real root only)
//	overlay                 write, rename and rmdir of what is below, on tmpfs
//	overlay on disk         the same where demesne keeps its state
//	network namespace       loopback alone, read back (package netns)
//	read-only /sys          of that namespace
//	egress path             veth, AnyIP, tproxy: a connection arrives (package netns)
//	landlock                a thread forbids itself to list / and then cannot
//	seccomp                 a thread forbids itself a system call and then cannot
//	cgroups                 what package limits found when the runner started
//
// The process that runs this has live sandboxes. Nothing here changes what belongs
// to the process: a probe spends a thread of its own, which ends with it, or a
// child. No probe leaves a mount, a process or a file, and none reaches a network.
//
// The program that calls [Run] must call [Reexec] first thing in main.
package doctor

import (
	"context"
	"os"
	"time"

	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// Env is what a runner knows and cannot find out again. Zero fields are unknown.
type Env struct {
	Minimal          bool   // no user namespace could be made,
	ModeWhy, ModeFix string // for this reason

	UIDMap, GIDMap []runner.IDRange // of the outer user namespace
	MapWhy, MapFix string           // why they are not more; empty: they are
	RealRoot       bool             // the caller is root of the machine

	Limits Limits
	Dir    string // an existing directory, to mount on in a namespace of our own
	RunDir string // the runner's, on a disk; see [Left]
	Key    string // the runner's
	Runner string // path of demesne-runner; empty: /proc/self/exe's

	// Facts, unless nil, stand for the machine's own.
	Facts *diagnose.Facts
}

// Limits is what package limits found.
type Limits struct {
	Mechanism string // cgroup2, cgroup1, rlimits, …
	Why, Fix  string // why it is not the best there is; empty: it is
}

// probeTime bounds Run. All probes together take some 20 ms, and on a machine that has other work a
// hundred times that; only a person waits for one that hangs.
const probeTime = 5 * time.Second

// group is probes that share their doing. do answers in the order of names.
type group struct {
	names []string
	bare  bool // works without a user namespace
	root  bool // concerns real root alone
	do    func(context.Context, *Env) []answer
}

// answer is a runner.Probe that does not know its name.
type answer struct {
	status           runner.Status
	detail, why, fix string
}

// groups is the table, in the order of the output.
var groups = []group{
	{names: []string{"user namespace", "id maps", "apparmor"}, bare: true, do: probeMaps},
	{names: []string{"nested user namespace", "fresh /proc", "hostname"}, do: probeNested},
	{names: []string{"idmapped mounts"}, root: true, do: probeIDMapped},
	{names: []string{"overlay"}, do: probeOverlay},
	{names: []string{"overlay on disk"}, do: probeOverlayDisk},
	{names: []string{"network namespace", "read-only /sys"}, do: probeNetwork},
	{names: []string{"egress path"}, do: probeEgress},
	{names: []string{"landlock"}, bare: true, do: probeLandlock},
	{names: []string{"seccomp"}, bare: true, do: probeSeccomp},
	{names: []string{"cgroups"}, bare: true, do: probeLimits},
}

// Run does all probes at the same time and answers within five seconds, whatever hangs.
// A probe that has nothing to say on this machine has no line.
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
		select { // both may be ready, and an answer is better than none
		case l := <-lines[i]:
			all = append(all, l...)
		default:
			all = append(all, g.late(&env, ctx.Err())...)
		}
	}
	return all
}

// runGroup answers once, into done.
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

// lines puts names to answers and leaves out those without a status.
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

// late is the answer of probes that gave none.
func (g group) late(e *Env, err error) []runner.Probe {
	if g.root && !e.RealRoot {
		return nil
	}
	return g.lines(g.same(answer{status: runner.Missing, why: "no answer in time: " + err.Error()}), probeTime)
}

// same is one answer for all of g.
func (g group) same(a answer) []answer {
	all := make([]answer, len(g.names))
	for i := range all {
		all[i] = a
	}
	return all
}

// facts reads them, and takes out what is only true inside: in the runner's user
// namespace everybody is privileged and mapped.
func (e *Env) facts() *diagnose.Facts {
	if e.Facts != nil {
		return e.Facts
	}
	path := e.Runner
	if path == "" {
		path, _ = os.Executable()
	}
	if e.Minimal {
		f := diagnose.Read(path)
		return &f
	}
	caller := os.Getuid()
	if len(e.UIDMap) > 0 {
		caller = int(e.UIDMap[0].Host)
	}
	f := diagnose.ReadAs(path, caller)
	f.Privileged, f.Unmapped = false, false
	return &f
}

func held(detail string) answer { return answer{status: runner.Held, detail: detail} }

// diagnosis is a function of package diagnose.
type diagnosis func(error, diagnose.Facts) (why, fix string)

// judge is status, with what stands in, explained.
func (e *Env) judge(status runner.Status, instead string, d diagnosis, err error) answer {
	why, fix := d(err, *e.Facts)
	return answer{status, instead, why, fix}
}
