package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
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

// TestImageCommitFiles checks that committed files keep their times in whole seconds, their holes, and owners that
// this user cannot set. Holes take no space on the way, so a sandbox cannot commit more than its disk limit allows.
func TestImageCommitFiles(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		g.push("owned:1", v1.Config{Env: []string{"PATH=/bin"}}, append(g.busybox(), fixture.Owned(fixture.File("owned", "theirs\n"), 77)))
		g.ok("create", "--name", "box", "--image", g.reg.Ref("owned:1"))
		g.ok("exec", "box", "-c", `set -e; busybox truncate -s 90M /holes; printf data | dd of=/holes bs=1 seek=53687091 conv=notrunc status=none
			echo more >> /owned`)
		file, at := g.file("f", "x", 0o644), time.Unix(1_700_000_000, 900_000_000)
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		g.ok("cp", file, "box:/f")
		g.ok("commit", "box", "local/files:1")
		got := g.inside("local/files:1", `stat -c %s /holes; stat -c %Y /f; test $(stat -c %b /holes) -lt 2048 && echo sparse
			busybox tail -c +53687092 /holes | head -c 4; echo; busybox tail -n 1 /owned`)
		if got != "94371840\n1700000000\nsparse\ndata\nmore\n" {
			t.Errorf("in the image: %q", got)
		}
		if all := g.listed(); len(all) != 2 || all[0].Size > 8<<20 || all[1].Size > 8<<20 {
			t.Errorf("the images are %+v", all)
		}
		g.ok("rm", "box")
		c := g.cli("export", "local/files:1")
		list := exec.Command("tar", "-tv", "--numeric-owner", "-f", "-", "owned")
		pipe, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		list.Stdin = pipe
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		out, err := list.Output()
		if err != nil || !strings.Contains(string(out), " 77/77 ") {
			t.Errorf("exported: %q, %v", out, err)
		}
		pipe.Close()
		_ = c.Wait() // tar need not read to the end
	})
}
