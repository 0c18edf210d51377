package sandbox

import (
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

func TestAdmitMounts(t *testing.T) {
	of := func(mounts ...runner.Mount) runner.Spec { return runner.Spec{Mounts: mounts} }
	with := func(s runner.Spec, change func(*runner.Spec)) runner.Spec { change(&s); return s }
	ro := func(target string) runner.Mount { return runner.Mount{Source: "/s", Target: target, ReadOnly: true} }
	rw := func(target string) runner.Mount { return runner.Mount{Source: "/s", Target: target} }
	nest := func(s *runner.Spec) { s.Nesting = true }
	for _, row := range []struct {
		name string
		spec runner.Spec
		want string // in the error; "": no error
	}{
		{"none", of(), ""},
		{"own path", of(rw("/home/u/p"), ro("/home/u/p/.git/hooks")), ""},
		{"below /in, /out and /workspace", of(ro("/in/.agent"), ro("/in/previous-jobs/x"), ro("/out/x"), rw("/workspace/x")), ""},
		{"home", of(rw("/root")), ""},
		{"workspace", of(rw("/workspace")), ""},
		{"two workspaces", with(of(rw("/workspace")), func(s *runner.Spec) { s.Workspace = "/w" }), "the workspace is there"},
		{"names like others", of(rw("/procs"), rw("/devel"), rw("/inner"), rw("/..x")), ""},
		{"root", of(rw("/")), "belongs to demesne"},
		{"in", of(ro("/in")), "belongs to demesne"},
		{"out", of(ro("/out")), "belongs to demesne"},
		{"proc", of(ro("/proc/x")), "belongs to demesne"},
		{"sys", of(ro("/sys")), "belongs to demesne"},
		{"dev", of(ro("/dev/shm/x")), "belongs to demesne"},
		{"dots", of(ro("/a/../proc")), "without . and .."},
		{"slash", of(ro("/a/")), "without . and .."},
		{"relative", of(ro("a")), "without . and .."},
		{"empty", of(ro("")), "without . and .."},
		{"NUL", of(ro("/a\x00")), "without . and .."},
		{"relative source", of(runner.Mount{Source: "s", Target: "/a"}), "source"},
		{"same target", of(rw("/a"), ro("/a")), "two mounts"},
		{"many", of(make([]runner.Mount, mountsMost+1)...), "at most"},
		{"nesting, apart", with(of(rw("/w"), ro("/r")), nest), ""},
		{"nesting, inside", with(of(ro("/w/r"), rw("/w")), nest), "nesting"},
		{"nesting, below /out", with(of(ro("/out/r")), nest), "nesting"},
		{"nesting, below a scratch workspace", with(of(ro("/workspace/r")), nest), ""},
	} {
		check(t, row.name, admitMounts(&row.spec), row.want, ipc.CodeInvalid)
	}
}

func TestAdmitMinimalMounts(t *testing.T) {
	for _, row := range []struct {
		name  string
		mount runner.Mount
		want  string
	}{
		{"own path", runner.Mount{Source: "/s", Target: "/s", ReadOnly: true}, ""},
		{"writable below a writable one", runner.Mount{Source: "/w/x", Target: "/w/x"}, ""},
		{"another path", runner.Mount{Source: "/s", Target: "/t"}, "differs"},
		{"below a writable one", runner.Mount{Source: "/w/.git", Target: "/w/.git", ReadOnly: true}, "writable directory"},
		{"below /out", runner.Mount{Source: "/o/x", Target: "/o/x", ReadOnly: true}, "writable directory"},
		{"beside it", runner.Mount{Source: "/wx", Target: "/wx", ReadOnly: true}, ""},
	} {
		spec := runner.Spec{Out: "/o", Mounts: []runner.Mount{{Source: "/w", Target: "/w"}, row.mount}}
		check(t, row.name, admitMinimalMounts(&spec), row.want, ipc.CodeRequirement)
	}
}

func check(t *testing.T, name string, err error, want string, code ipc.Code) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || ipc.AsError(err).Code != code) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}
