package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSessionNarrowedCaller checks callers with no_new_privs or lower limits. Each has a runner of its own, and
// can still use the sandboxes of the other runner, in both directions.
func TestSessionNarrowedCaller(t *testing.T) {
	setpriv, prlimit := program(t, "setpriv"), program(t, "prlimit")
	ways := map[string]func(*box, ...string) result{
		"plain": func(b *box, args ...string) result { return b.demesne(args...) },
		"no_new_privs": func(b *box, args ...string) result {
			return b.finish(b.command(setpriv, append([]string{"--no-new-privs", bin + "/demesne"}, args...)...))
		},
		"few descriptors": func(b *box, args ...string) result {
			return b.finish(b.command(prlimit, append([]string{"--nofile=1024:1024", bin + "/demesne"}, args...)...))
		},
	}
	for _, c := range []struct{ maker, user string }{{"plain", "no_new_privs"}, {"no_new_privs", "plain"}, {"plain", "few descriptors"}} {
		t.Run(c.maker+", then "+c.user, func(t *testing.T) {
			b := newBox(t)
			use := func(args ...string) string {
				t.Helper()
				r := ways[c.user](b, args...)
				if r.code != 0 {
					t.Errorf("%v: %+v", args, r)
				}
				return r.stdout
			}
			made := ways[c.maker](b, "create", "--name", "one")
			id := strings.TrimSpace(made.stdout)
			if made.code != 0 {
				t.Fatalf("create: %+v", made)
			}
			b.Cleanup(func() { ways[c.maker](b, "rm", "one") })
			if got := use("exec", "one", "-c", "echo inside > f; (sleep 1000 > /dev/null 2>&1 &) ; echo $$"); strings.TrimSpace(got) == "" {
				t.Error("exec said nothing")
			}
			use("exec", id, "--", "true")
			b.file("up.txt", "from outside\n", 0o644)
			use("cp", b.dir+"/up.txt", "one:/workspace/")
			use("cp", "one:/workspace/f", b.mkdir("down"))
			if text, err := os.ReadFile(filepath.Join(b.dir, "down", "f")); err != nil || string(text) != "inside\n" {
				t.Errorf("cp: %q, %v", text, err)
			}
			if got := use("inspect", "one"); !strings.Contains(got, id) {
				t.Errorf("inspect: %s", got)
			}
			if got := use("ls"); strings.Count(got, id) != 1 {
				t.Errorf("ls: %s", got)
			}
			use("diff", "one")
			fork := strings.TrimSpace(use("fork", "one"))
			if got := ways[c.maker](b, "exec", fork, "-c", "cat f up.txt"); got.stdout != "inside\nfrom outside\n" {
				t.Errorf("the fork: %+v", got)
			}
			use("rm", fork)
			// It is the same sandbox: its processes are still running.
			if got := ways[c.maker](b, "exec", "one", "-c", "grep -l sleep /proc/[0-9]*/comm | wc -l"); strings.TrimSpace(got.stdout) != "1" {
				t.Errorf("processes: %+v", got)
			}
			use("stop", "one")
			use("rm", "one")
		})
	}
}

// TestSessionFilteredCaller checks that a caller under a seccomp filter gets a sandbox under that filter, although a runner
// without it is live, and that no other caller gets one under the filter, although a runner with it is live (P30).
func TestSessionFilteredCaller(t *testing.T) {
	setpriv := program(t, "setpriv")
	plain := func(b *box, args ...string) result {
		return b.finish(b.command(setpriv, append([]string{"--no-new-privs", bin + "/demesne"}, args...)...))
	}
	filtered := func(b *box, args ...string) result { // it has no_new_privs too
		return b.finish(b.command(tools+"/nons", append([]string{"--splice", bin + "/demesne"}, args...)...))
	}
	twice := func(b *box, args ...string) result {
		return b.finish(b.command(tools+"/nons", append([]string{"--splice", tools + "/nons", "--splice", bin + "/demesne"}, args...)...))
	}
	filters := func(b *box, way func(*box, ...string) result) string {
		b.Helper()
		r := way(b, "run", "--", "grep", "^Seccomp_filters", "/proc/self/status")
		if r.code != 0 {
			b.Fatalf("run: %+v", r)
		}
		return r.stdout
	}
	alone := ""
	t.Run("alone", func(t *testing.T) { alone = filters(newBox(t), plain) })
	for name, first := range map[string]func(*box, ...string) result{"filtered first": filtered, "plain first": plain} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			if r := first(b, "create", "--name", "one"); r.code != 0 {
				t.Fatalf("create: %+v", r)
			}
			without, with, more := filters(b, plain), filters(b, filtered), filters(b, twice)
			if without != alone || with == alone || more == with || more == alone {
				t.Errorf("filters %q without one, %q with one, %q with two; alone %q", without, with, more, alone)
			}
			if r := first(b, "rm", "one"); r.code != 0 {
				t.Errorf("rm: %+v", r)
			}
		})
	}
	// The limit of the check: the kernel shows the number of filters, but not their content.
	t.Run("equal number", func(t *testing.T) {
		b := newBox(t)
		runners := func() int {
			locks, _ := filepath.Glob(b.run + "/demesne/*.lock")
			return len(locks)
		}
		if r := filtered(b, "create", "--name", "one"); r.code != 0 {
			t.Fatalf("create: %+v", r)
		}
		if r := b.finish(b.command(tools+"/nons", "--flock", bin+"/demesne", "exec", "one", "--", "true")); r.code != 0 || runners() != 1 {
			t.Errorf("another filter: %d runners, %+v", runners(), r)
		}
		if r := filtered(b, "rm", "one"); r.code != 0 {
			t.Errorf("rm: %+v", r)
		}
	})
}
