package integration

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestStopSignal checks that stop asks processes to end by the signal of the image, that a paused process gets it
// too, and that one that ignores it is killed.
func TestStopSignal(t *testing.T) {
	g := newGallery(t)
	server := `for s in USR1 TERM; do trap "echo $s >> /said; exit" $s; done; echo up > /up; while :; do sleep 0.05; done`
	for signal, want := range map[string]string{"": "TERM\n", "SIGUSR1": "USR1\n"} {
		g.push("stop:1", v1.Config{Env: []string{"PATH=/bin"}, StopSignal: signal}, g.busybox())
		ref := g.reg.Ref("stop:1")
		g.ok("pull", ref)
		g.ok("create", "--name", "box", "--pause-idle", "100ms", "--image", ref)
		g.ok("exec", "box", "-c", "("+server+") >/dev/null 2>&1 & while ! test -e /up; do sleep 0.01; done")
		eventually(t, "the pause", func() bool { return strings.Contains(g.ok("inspect", "box"), "paused") })
		g.ok("stop", "box")
		if got := g.ok("exec", "box", "-c", "cat /said"); got != want {
			t.Errorf("stop signal %q: %q, want %q", signal, got, want)
		}
		g.ok("rm", "box")
	}
	g.ok("create", "--name", "box")
	g.ok("exec", "box", "-c", `(trap "echo no >> said" TERM; echo up > up; while :; do sleep 0.05; done) >/dev/null 2>&1 & while ! test -e up; do sleep 0.01; done`)
	g.ok("stop", "--grace", "200ms", "box")
	if got := g.ok("exec", "box", "-c", "cat said; pgrep sleep | wc -l"); got != "no\n0\n" {
		t.Errorf("a process that ignores the signal: %q", got)
	}
	g.ok("stop", "--grace", "0", "box")
	if r := g.do("stop", "--grace", "soon", "box"); r.code == 0 || !strings.Contains(r.stderr, "not a duration") {
		t.Errorf("%+v", r)
	}
	g.ok("rm", "box")
}
