package integration

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// server writes the signal that ends it to /mark, once it runs.
const server = `for s in TERM INT QUIT; do trap "echo $s >> /mark; exit 0" $s; done; echo up > /up; while :; do sleep 0.05; done`

// serve starts a command in a sandbox, and waits until it has made /up. It is not a background job of a shell, which would
// ignore SIGINT and SIGQUIT.
func (b *box) serve(id, script string) {
	b.Helper()
	b.must("exec", id, "-c", "rm -f /up")
	cmd := b.command("demesne", "exec", id, "-c", script)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Wait() })
	eventually(b.TB, "the server to run", func() bool { return b.demesne("exec", id, "-c", "test -e /up").code == 0 })
}

// TestStopGrace checks that stop asks the processes to end, and kills those that do not after --grace.
func TestStopGrace(t *testing.T) {
	b := newBox(t)
	id := b.create()
	b.serve(id, server)
	began := time.Now()
	b.must("stop", id)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("a server that ends at SIGTERM took %v", took)
	}
	if got := b.must("exec", id, "-c", "cat /mark; rm /mark"); got != "TERM\n" {
		t.Errorf("the server got %q", got)
	}

	b.serve(id, `trap "" TERM; echo up > /up; while :; do sleep 0.05; done`)
	began = time.Now()
	b.must("stop", "--grace", "1s", id)
	if took := time.Since(began); took < time.Second || took > 8*time.Second {
		t.Errorf("a server that ignores SIGTERM took %v", took)
	}

	b.serve(id, server)
	b.must("stop", "--grace", "0", id)
	if got := b.must("exec", id, "-c", "cat /mark 2>/dev/null; true"); got != "" {
		t.Errorf("with --grace 0 the server got %q", got)
	}
	paused := b.create("--pause-idle", "100ms")
	b.must("exec", paused, "-c", "sh -c 'trap \"echo TERM > /mark; exit 0\" TERM; echo up > /up; while :; do sleep 0.05; done' > /dev/null 2>&1 & while ! test -e /up; do sleep 0.01; done")
	eventually(t, "the sandbox to be paused", func() bool { return strings.Contains(b.must("inspect", paused), "paused") })
	b.must("stop", paused)
	if got := b.must("exec", paused, "-c", "cat /mark"); got != "TERM\n" {
		t.Errorf("a paused server got %q", got)
	}
	if r := b.demesne("stop", "--grace", "-1s", id); r.code != 125 {
		t.Errorf("a negative grace: %+v", r)
	}
}

// TestStopSignal checks that stop sends the signal that the image names.
func TestStopSignal(t *testing.T) {
	g := newGallery(t)
	for signal, want := range map[string]string{"SIGQUIT": "QUIT\n", "2": "INT\n", "nonsense": "TERM\n"} {
		ref := g.reg.Ref("stop/" + strings.ToLower(signal) + ":1")
		g.push("stop/"+strings.ToLower(signal)+":1", v1.Config{StopSignal: signal}, g.busybox())
		id := strings.TrimSpace(g.must("create", "--image", ref))
		g.serve(id, server)
		g.must("stop", id)
		if got := g.must("exec", id, "-c", "cat /mark"); got != want {
			t.Errorf("StopSignal %s: the server got %q, want %q", signal, got, want)
		}
		g.must("rm", id)
	}
}

// TestExecTimeout checks that the line about a time limit has the limit, in run and in exec.
func TestExecTimeout(t *testing.T) {
	b := newBox(t)
	id := b.create()
	for _, args := range [][]string{{"exec", "--timeout", "1s", id, "--", "sleep", "9"}, {"run", "--timeout", "1s", "--", "sleep", "9"}} {
		if r := b.demesne(args...); r.code != 124 || !strings.Contains(r.stderr, "the time limit of 1s was reached") {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
