package doctor

import (
	"os"

	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

// Env holds facts that a runner knows and a probe cannot find again. Zero fields are unknown.
type Env struct {
	Minimal          bool   // no user namespace could be made
	ModeWhy, ModeFix string // the reason, and its fix

	UIDMap, GIDMap []runner.IDRange // of the outer user namespace
	MapWhy, MapFix string           // why the maps are not larger; empty: they are complete
	RealRoot       bool             // the caller is real root
	Alone          bool             // the runner has no socket for other callers

	Limits Limits
	Dir    string // an existing directory for mounts in a probe's own namespace
	RunDir string // the runner's directory on disk; see [Left]
	Key    string // the runner's key
	Runner string // path of demesne-runner; empty: /proc/self/exe

	// Facts replaces the machine's own facts unless nil.
	Facts *diagnose.Facts
}

// Limits is the result of package limits.
type Limits struct {
	Mechanism string // cgroup2, cgroup1, rlimits, …
	Why, Fix  string // why it is not the best mechanism; empty: it is
}

// answer is a runner.Probe without its name.
type answer struct {
	status           runner.Status
	detail, why, fix string
}

func held(detail string) answer { return answer{status: runner.Held, detail: detail} }

// diagnosis is a function of package diagnose.
type diagnosis func(error, diagnose.Facts) (why, fix string)

// facts reads the facts and removes those that hold only inside: in the runner's user namespace every process
// is privileged and mapped.
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

// judge returns an answer with status and substitute, explained by d.
func (e *Env) judge(status runner.Status, instead string, d diagnosis, err error) answer {
	why, fix := d(err, *e.Facts)
	return answer{status, instead, why, fix}
}
