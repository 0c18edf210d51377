package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"demesne/runner"
	"demesne/runner/doctor/diagnose"
)

func oneID() []runner.IDRange { return []runner.IDRange{{Inside: 0, Host: 1000, Size: 1}} }

// byName runs all probes in dir and logs them.
func byName(t *testing.T, e Env) map[string]runner.Probe {
	t.Helper()
	start := time.Now()
	all := map[string]runner.Probe{}
	for _, p := range Run(t.Context(), e) {
		t.Logf("%-22s %-9s %s | %s | %s (%.1f ms)", p.Name, p.Status, p.Detail, p.Why, p.Fix, p.MS)
		all[p.Name] = p
		if p.Status != runner.Held && p.Why == "" {
			t.Errorf("%s: %s without a reason", p.Name, p.Status)
		}
	}
	t.Logf("all took %v", time.Since(start))
	return all
}

func want(t *testing.T, all map[string]runner.Probe, status runner.Status, names ...string) {
	t.Helper()
	for _, n := range names {
		if got := all[n]; got.Status != status {
			t.Errorf("%s: %+v, want %s", n, got, status)
		}
	}
}

// runDir returns a run directory in which only the second test directory is writable.
func runDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOneID(t *testing.T) {
	asRootAndUser(t, start{ids: 1}, func(t *testing.T) {
		disk := runDir(t)
		all := byName(t, Env{
			UIDMap: oneID(), GIDMap: oneID(), MapWhy: "newuidmap is not installed",
			Facts: &diagnose.Facts{User: "ann"},
			Dir:   t.TempDir(), RunDir: disk,
			Limits: Limits{Mechanism: "rlimits", Why: "no cgroup", Fix: "x"},
		})
		want(t, all, runner.Held, "user namespace", "nested user namespace", "fresh /proc", "hostname",
			"overlay", "network namespace", "read-only /sys", "egress path", "landlock", "seccomp")
		want(t, all, runner.Degraded, "id maps", "cgroups")
		if p := all["id maps"]; p.Fix != "sudo apt install uidmap" {
			t.Errorf("id maps: %+v", p)
		}
		if _, ok := all["overlay on disk"]; !ok {
			t.Error("the disk was not probed")
		}
		if _, ok := all["idmapped mounts"]; ok {
			t.Error("idmapped mounts concern real root alone")
		}
		if left, err := os.ReadDir(filepath.Join(disk, "state")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	})
}

func TestManyIDs(t *testing.T) {
	asRootAndUser(t, start{ids: 65536}, func(t *testing.T) {
		m := []runner.IDRange{{Inside: 0, Host: 0x70000000, Size: 65536}}
		all := byName(t, Env{UIDMap: m, GIDMap: m, RealRoot: true})
		want(t, all, runner.Held, "id maps", "nested user namespace", "idmapped mounts")
		if _, ok := all["cgroups"]; ok {
			t.Error("nothing is known of cgroups")
		}
	})
}

// TestMapsLied: the id map is tested, not trusted.
func TestMapsLied(t *testing.T) {
	asRootAndUser(t, start{ids: 1}, func(t *testing.T) {
		m := []runner.IDRange{{Inside: 0, Host: 1, Size: 65536}}
		want(t, byName(t, Env{UIDMap: m, GIDMap: m}), runner.Missing, "id maps", "nested user namespace")
	})
}

func TestMaskedProc(t *testing.T) {
	mask := start{ids: 1, shell: "mount -t tmpfs none /proc/sys/net 2>/dev/null || mount -t tmpfs none /proc/sys"}
	asRootAndUser(t, mask, func(t *testing.T) {
		all := byName(t, Env{UIDMap: oneID(), GIDMap: oneID()})
		want(t, all, runner.Degraded, "fresh /proc")
		want(t, all, runner.Held, "nested user namespace", "network namespace", "hostname")
	})
}

// TestNoNamespaces forbids user namespaces as the owner of a machine would.
func TestNoNamespaces(t *testing.T) {
	asRootAndUser(t, start{ids: 1, shell: "echo 0 > /proc/sys/user/max_user_namespaces"}, func(t *testing.T) {
		all := byName(t, Env{UIDMap: oneID(), GIDMap: oneID()})
		want(t, all, runner.Missing, "nested user namespace", "hostname")
		if p := all["nested user namespace"]; !strings.Contains(p.Fix, "max_user_namespaces") {
			t.Errorf("%+v", p)
		}
	})
}

func TestMinimal(t *testing.T) {
	e := Env{Minimal: true, ModeWhy: "unshare: not permitted", ModeFix: "do this"}
	all := byName(t, e)
	want(t, all, runner.Missing, "user namespace", "nested user namespace", "overlay", "network namespace")
	want(t, all, runner.Degraded, "egress path")
	want(t, all, runner.Held, "landlock", "seccomp")
	if p := all["overlay"]; p.Fix != "do this" {
		t.Errorf("%+v", p)
	}
}

func TestAppArmorLine(t *testing.T) {
	for name, c := range map[string]struct {
		sysctl  string
		minimal bool
		want    runner.Status
	}{
		"no such thing":  {"", true, ""},
		"off":            {"0", true, runner.Held},
		"on, not for us": {"1", false, runner.Held},
		"on":             {"1", true, runner.Missing},
	} {
		e := &Env{Minimal: c.minimal, Facts: &diagnose.Facts{AppArmor: c.sysctl, Runner: "/r"}}
		if got := e.appArmor(); got.status != c.want || (c.want == runner.Missing) != strings.Contains(got.fix, "apparmor_parser") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestRunIsBounded calls Run with a context that has already ended.
func TestRunIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	seen := []string{}
	for _, p := range Run(ctx, Env{Minimal: true}) {
		seen = append(seen, p.Name)
	}
	if !slices.Contains(seen, "landlock") || !slices.Contains(seen, "user namespace") {
		t.Errorf("lines are missing: %v", seen)
	}
}

// TestNothingChanges: Run does not change the process's namespaces, its threads' restrictions or its
// descriptors.
func TestNothingChanges(t *testing.T) {
	// Private, because other mounts on this machine would propagate meanwhile.
	alone := start{ids: 1, shell: "mount --make-rprivate /"}
	asRootAndUser(t, alone, func(t *testing.T) {
		e := Env{UIDMap: oneID(), GIDMap: oneID(), Dir: t.TempDir(), RunDir: runDir(t)}
		Run(t.Context(), e) // the runtime opens the descriptors it keeps
		before := state(t)
		for end := time.Now().Add(time.Minute); strings.Count(before, "thread: ") > 1 && time.Now().Before(end); before = state(t) {
			time.Sleep(10 * time.Millisecond) // the disposable threads end
		}
		for range 5 {
			Run(t.Context(), e)
		}
		deadline := time.Now().Add(time.Minute)
		for after := state(t); after != before; after = state(t) {
			if time.Now().After(deadline) {
				t.Fatalf("before:\n%s\nafter:\n%s", before, after)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// state describes the process; equal threads count once.
func state(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	seen := map[string]bool{}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		at := "/proc/self/task/" + task.Name()
		one := "thread: "
		for _, ns := range []string{"user", "mnt", "net", "pid", "uts"} {
			link, _ := os.Readlink(at + "/ns/" + ns)
			one += link + " "
		}
		status, _ := os.ReadFile(at + "/status")
		for l := range strings.Lines(string(status)) {
			for _, key := range []string{"NoNewPrivs", "Seccomp:", "CapEff", "Uid"} {
				if strings.HasPrefix(l, key) {
					one += strings.TrimSpace(l) + " "
				}
			}
		}
		if !seen[one] {
			seen[one] = true
			b.WriteString(one + "\n")
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	fds, _ := os.ReadDir("/proc/self/fd")
	open := ""
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		open += fd.Name() + " " + to + "\n"
	}
	var u unix.Utsname
	unix.Uname(&u)
	b.WriteString(unix.ByteSliceToString(u.Nodename[:]) + "\n")
	b.WriteString(string(mounts))
	b.WriteString(open)
	return b.String()
}
