package integration

import (
	"slices"
	"strings"
	"testing"
)

// TestRunDirs checks that a program with the variables of a login session uses the sandboxes of one without: jobs of cron, su and
// units of the system have none. make test-vm tries the other direction, which needs a session of systemd.
func TestRunDirs(t *testing.T) {
	b := newBox(t)
	session := b.environ()
	cron := slices.DeleteFunc(slices.Clone(session), func(v string) bool { return strings.HasPrefix(v, "XDG_RUNTIME_DIR=") })
	as := func(env []string, args ...string) result {
		cmd := b.command("demesne", args...)
		cmd.Env = env
		return b.finish(cmd)
	}
	if r := as(cron, "create", "--name", "job"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	as(cron, "exec", "job", "-c", "sleep 1000 >/dev/null 2>&1 &")
	if r := as(session, "exec", "job", "-c", "cat /proc/[0-9]*/comm"); !strings.Contains(r.stdout, "sleep\n") {
		t.Errorf("its processes: %+v", r)
	}
	if r := as(session, "ls"); !strings.Contains(r.stdout, "running") {
		t.Errorf("%+v", r)
	}
	if r := as(session, "rm", "job"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}
