package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestSessionListOrder checks that ls lists the oldest sandbox first, in any state, and in the same order each
// time.
func TestSessionListOrder(t *testing.T) {
	b := newBox(t)
	var want []string
	for range 6 {
		want = append(want, b.create())
	}
	b.must("stop", want[2])
	b.must("stop", want[4])
	want = append(want, strings.TrimSpace(b.must("snapshot", want[2])))
	want = append(want, b.create())
	for range 4 {
		if got := strings.Fields(b.must("ls", "-q")); !slices.Equal(got, want) {
			t.Errorf("ls -q: %q, made in the order %q", got, want)
		}
		var all []info
		if err := json.Unmarshal([]byte(b.must("ls", "--json")), &all); err != nil || len(all) != len(want) {
			t.Fatalf("ls --json: %v %+v", err, all)
		}
		for i := range all {
			if all[i].ID != want[i] {
				t.Errorf("ls --json: number %d is %s, want %s", i, all[i].ID, want[i])
			}
		}
	}
	b.must(append([]string{"rm"}, want...)...)
}

// TestSessionForkFirst checks that the first command in a fork gets no restart notice, because a fork never ran
// before. The original sandbox gets one if it had stopped.
func TestSessionForkFirst(t *testing.T) {
	b := newBox(t)
	b.create("--name", "one")
	b.must("exec", "one", "-c", "echo kept > /root/f")
	b.must("fork", "--name", "idle", "one")
	b.must("exec", "one", "-c", "sleep 1000 >/dev/null 2>&1 &")
	b.must("fork", "--name", "running", "one")
	b.must("stop", "one")
	b.must("fork", "--name", "stopped", "one")
	for _, fork := range []string{"idle", "running", "stopped"} {
		for _, call := range []string{"first", "second"} {
			if r := b.demesne("exec", fork, "--", "cat", "/root/f"); r.code != 0 || r.stdout != "kept\n" || r.stderr != "" {
				t.Errorf("the %s command of the fork %s: %+v", call, fork, r)
			}
		}
		b.must("stop", fork)
		if r := b.demesne("exec", fork, "--", "true"); !strings.Contains(r.stderr, "started again with its files") {
			t.Errorf("the fork %s after a stop: %+v", fork, r)
		}
	}
	if r := b.demesne("exec", "one", "--", "true"); !strings.Contains(r.stderr, "started again with its files") {
		t.Errorf("what was forked, after a stop: %+v", r)
	}
	b.must("rm", "idle", "running", "stopped")
}

// TestSessionForkPublish checks that a fork starts beside the original without inheriting its published ports,
// and says so. It publishes the ports given for it.
func TestSessionForkPublish(t *testing.T) {
	b := newBox(t)
	port, own := freePort(t), freePort(t)
	sock := b.dir + "/s"
	b.create("--name", "web", "--publish", port+":3000", "--publish", "unix:"+sock+":3000")
	const serve = `cat > /root/serve.py <<'END'
import socket, sys
l = socket.create_server(("127.0.0.1", 3000))
while True:
    c, _ = l.accept(); c.sendall((sys.argv[1] + " got " + c.recv(10).decode()).encode()); c.close()
END
python3 /root/serve.py %s >/dev/null 2>&1 &`
	b.must("exec", "web", "-c", fmt.Sprintf(serve, "web"))
	r := b.demesne("fork", "--name", "plain", "web")
	if r.code != 0 || !strings.Contains(r.stderr, "127.0.0.1:"+port) || !strings.Contains(r.stderr, "unix:"+sock) || !strings.Contains(r.stderr, "ports not published by the fork") {
		t.Errorf("fork: %+v", r)
	}
	if got := b.must("exec", "plain", "--", "echo", "starts"); got != "starts\n" {
		t.Errorf("the fork: %q", got)
	}
	b.must("snapshot", "--name", "snap", "web")
	if r := b.demesne("fork", "--name", "late", "snap"); r.code != 0 || !strings.Contains(r.stderr, "127.0.0.1:"+port) {
		t.Errorf("fork of a snapshot: %+v", r)
	}
	r = b.demesne("fork", "--name", "own", "--publish", own+":3000", "web")
	if r.code != 0 {
		t.Errorf("fork --publish: %+v", r)
	}
	b.must("exec", "own", "-c", fmt.Sprintf(serve, "own"))
	for at, want := range map[string]string{"tcp 127.0.0.1:" + port: "web got hi", "unix " + sock: "web got hi", "tcp 127.0.0.1:" + own: "own got hi"} {
		network, address, _ := strings.Cut(at, " ")
		eventually(t, "an answer of "+want+" on "+at, func() bool { return dialInside(network, address) == want })
	}
	// An unavailable port is reported before the fork is created.
	before := b.must("ls", "-q")
	b.refused(t, "127.0.0.1:"+port, "fork", "--publish", port+":3000", "web")
	if after := b.must("ls", "-q"); after != before {
		t.Errorf("a refused fork is there: %q, before %q", after, before)
	}
	if got := dialInside("tcp", "127.0.0.1:"+port); got != "web got hi" {
		t.Errorf("the first after all that: %q", got)
	}
	b.must("rm", "plain", "late", "own", "snap")
}

// freePort returns a port that no program listens on. The kernel gives it to no socket that does not ask for it, so that nothing takes it
// before the caller does: these ports begin at 32768.
func freePort(t testing.TB) string {
	t.Helper()
	var port string
	eventually(t, "a free port", func() bool {
		port = strconv.Itoa(20_000 + rand.IntN(12_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err == nil {
			l.Close()
		}
		return err == nil
	})
	return port
}

// TestImageForcedKept checks that rmi --force and gc leave a sandbox its files, including its image's.
// That holds for a stopped sandbox, a fork of it, and a snapshot.
func TestImageForcedKept(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		g.push("base:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), []fixture.Entry{fixture.File("base", "base\n")})
		g.push("idle:1", v1.Config{Env: []string{"PATH=/bin"}}, g.busybox(), []fixture.Entry{fixture.File("idle", "idle\n")})
		g.ok("pull", g.reg.Ref("idle:1"))
		id := strings.TrimSpace(g.ok("create", "--image", g.reg.Ref("base:1")))
		g.ok("exec", id, "-c", "echo mine > /mine")
		snap := strings.TrimSpace(g.ok("snapshot", id))
		g.ok("stop", id)
		g.ok("rmi", "--force", g.reg.Ref("base:1"))
		for range 2 {
			g.ok("gc", "--all")
			if n := len(g.trees()); n != 2 {
				t.Errorf("gc --all leaves %d trees, want the two of the sandbox", n)
			}
			if got := g.ok("exec", id, "--", "cat", "/base", "/mine"); got != "base\nmine\n" {
				t.Errorf("the sandbox: %q", got)
			}
			g.ok("stop", id)
		}
		fork := strings.TrimSpace(g.ok("fork", snap))
		g.ok("rm", id, snap)
		g.ok("gc", "--all")
		if got := g.ok("exec", fork, "--", "cat", "/base", "/mine"); got != "base\nmine\n" {
			t.Errorf("the fork: %q", got)
		}
		g.ok("rm", fork)
		g.ok("gc", "--all")
		if n := len(g.trees()); n != 0 {
			t.Errorf("%d trees are left that nothing needs", n)
		}
	})
}
