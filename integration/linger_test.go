package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lingers sets how long the box's runner lives after its last caller.
func (b *box) lingers(d string) *box {
	b.extra = append(b.extra, "DEMESNE_LINGER="+d)
	return b
}

// oneRunner returns the process id of the only runner. Children of the runner that become PID 1 of prepared
// sandboxes have its name at first, and are ignored.
func oneRunner(t *testing.T) int {
	t.Helper()
	var found []int
	all := runners(true)
	for _, p := range descendants() {
		if slices.Contains(all, p.pid) && !slices.Contains(all, p.ppid) {
			found = append(found, p.pid)
		}
	}
	if len(found) != 1 {
		t.Fatalf("want one runner, have %v", found)
	}
	return found[0]
}

func gone(t *testing.T) {
	t.Helper()
	eventually(t, "every process to be gone", func() bool { return len(descendants()) == 0 })
}

// TestLinger checks that one runner serves the runs of a loop, with sandboxes that it prepared meanwhile. It ends
// when its time is up.
func TestLinger(t *testing.T) {
	b := newBox(t).lingers("1h")
	b.sh("true")
	first := oneRunner(t)
	eventually(t, "a run in a prepared sandbox", func() bool { p, _ := b.report(nil, "true"); return onSpare(p) })
	if now := oneRunner(t); now != first {
		t.Errorf("the runner was %d and is %d", first, now)
	}
	b.lingers("100ms").sh("true")
	gone(t)
}

// TestLingerNot checks that the setting of the last caller applies, and that a runner that created no sandbox
// does not linger.
func TestLingerNot(t *testing.T) {
	for _, d := range []string{"0", "0s"} {
		newBox(t).lingers(d).sh("true")
		gone(t)
	}
	b := newBox(t).lingers("1h")
	b.demesne("check", "--json")
	b.demesne("ls")
	gone(t)
	b.sh("true")
	oneRunner(t)
	b.lingers("0").sh("true")
	gone(t)
	for _, d := range []string{"x", "-1s", "2h", "10"} {
		if r := b.lingers(d).demesne("run", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "DEMESNE_LINGER "+`"`+d+`": not a duration from 0 to 1h0m0s`) {
			t.Errorf("%s: %+v", d, r)
		}
	}
}

// continues returns how many sandboxes gc --runner reports. Other runners of this user, whose sandboxes come and go, add theirs.
func continues(t *testing.T, r result) (n int) {
	t.Helper()
	const line = "demesne: gc: the runner continues: %d running\n"
	var want result
	if fmt.Sscanf(r.stderr, line, &n); n > 0 {
		want.stderr = fmt.Sprintf(line, n)
	}
	if r != want {
		t.Errorf("%+v", r)
	}
	return n
}

// TestLingerRetired checks that gc --runner ends a lingering runner, but not one with a sandbox.
func TestLingerRetired(t *testing.T) {
	b := newBox(t).lingers("1h")
	continues(t, b.demesne("gc", "--runner")) // without a runner
	b.sh("true")
	b.sh("true") // the second one makes the runner prepare another
	continues(t, b.demesne("gc", "--runner"))
	gone(t)
	b.demesne("create", "--name", "n")
	first := oneRunner(t)
	if n := continues(t, b.demesne("gc", "--runner")); n < 1 {
		t.Errorf("with a sandbox: %d running", n)
	}
	if now := oneRunner(t); now != first {
		t.Errorf("the runner was %d and is %d", first, now)
	}
	b.demesne("rm", "n")
	b.demesne("gc", "--runner")
	gone(t)
}

// TestLingerEnds checks that a lingering runner that is killed leaves no files, and that one whose program is
// replaced ends at once.
func TestLingerEnds(t *testing.T) {
	for _, how := range []string{"killed", "replaced"} {
		t.Run(how, func(t *testing.T) {
			b := newBox(t).lingers("1h")
			libexec := b.dir + "/libexec"
			if err := os.Mkdir(libexec, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"demesne-runner", "demesne-init", "demesne-proxy"} {
				text, err := os.ReadFile(filepath.Join(bin, name))
				if err == nil {
					err = os.WriteFile(libexec+"/"+name, text, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			b.extra = append(b.extra, "DEMESNE_LIBEXEC="+libexec)
			b.sh("true")
			b.sh("true") // the second one makes the runner prepare another
			pid := oneRunner(t)
			if how == "killed" {
				time.Sleep(50 * time.Millisecond) // some rounds find a half-prepared sandbox
				syscall.Kill(pid, syscall.SIGKILL)
			} else if err := os.Rename(libexec+"/demesne-proxy", libexec+"/demesne-runner"); err != nil {
				t.Fatal(err)
			}
			gone(t)
		})
	}
}
