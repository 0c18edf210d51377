package integration

import (
	"strings"
	"testing"
)

// TestImageCommit checks that the changes of a sandbox become an image, with one id and with many. Files are
// added, modified, removed and replaced, with owners and links, in a fork and in the sandbox it was forked from.
func TestImageCommit(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		ref, _ := g.simple("demo:1")
		g.ok("create", "--name", "box", "--image", ref)
		g.ok("exec", "box", "-c", `mkdir -p /new/d /gone; echo f > /new/d/f; ln /new/d/f /new/twin; ln -s f /new/d/l; chmod 751 /new/d/f; mkfifo /new/p
			echo mine >> /etc/passwd; echo x > /gone/x; echo secret > /out/not; chown 7:8 /new/d; mkdir /workspace/w`)
		g.ok("stop", "box")
		g.ok("fork", "--name", "two", "box")
		g.ok("exec", "two", "-c", "rm -r /gone; mkdir /gone; echo y > /gone/y; rm /new/twin; echo more > /new/more; "+
			"(sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid)")
		if got := g.ok("commit", "--env", "COLOUR=blue", "--workdir", "/new", "two", "local/made:1", "--", "/bin/sh", "-c", "pwd; echo $COLOUR"); !strings.HasPrefix(got, "local/made:1 sha256:") {
			t.Errorf("commit says %q", got)
		}
		if got := g.ok("run", "--image", "local/made:1"); got != "/new\nblue\n" {
			t.Errorf("its command says %q", got)
		}
		look := `cat d/f d/l more; stat -c %a d/f; ls /gone /new | tr '\n' ' '; tail -n 1 /etc/passwd; ls /out; ls -d /workspace/w; test -p p && echo pipe; stat -c %u:%g d`
		want := "f\nf\nmore\n751\n/gone: y /new: d more p mine\n/workspace/w\npipe\n7:8\n"
		got := g.ok("run", "--image", "local/made:1", "--", "sh", "-c", look)
		if one { // 0 is the only id
			want = strings.Replace(want, "7:8", "0:0", 1)
		}
		if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("it has %q, want %q", got, want)
		}
		// The committed sandbox keeps running, and the temporary snapshot is gone.
		if all := strings.Fields(g.ok("ls", "-q")); len(all) != 2 {
			t.Errorf("there are %q", all)
		}
		g.ok("exec", "two", "-c", "kill -0 $(cat /tmp/pid)")
		g.ok("rm", "box", "two")
	})
}

// TestImageCommitRefused checks that a commit that cannot become an image is refused with a reason.
func TestImageCommitRefused(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("create", "--name", "host")
	g.told(t, "this machine's own files, not on an image", "commit", "host", "local/x")
	g.told(t, "no such sandbox", "commit", "nosuch", "local/x")
	g.told(t, "needs a sandbox and an image name", "commit", "host")
	g.ok("create", "--name", "box", "--image", ref)
	g.told(t, "name", "commit", "box", "local/x@sha256:"+strings.Repeat("0", 64))
	g.ok("exec", "box", "-c", "touch /.wh.x")
	g.told(t, ".wh.", "commit", "box", "local/x")
	if all := strings.Fields(g.ok("ls", "-q")); len(all) != 2 {
		t.Errorf("there are %q", all)
	}
	g.ok("rm", "host", "box")
}
