package integration

import (
	"os"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestImagePullAndRun checks that a missing image is pulled, unpacked and run, once, and that the receipt has its
// digest.
func TestImagePullAndRun(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		ref, img := g.simple("demo:1")
		if r := g.do("run", "--image", ref); r.code != 0 || r.stdout != "default\n" {
			t.Fatalf("run --image: %+v", r)
		}
		p := g.parse(g.do("run", "--json", "--image", ref, "--", "cat", "/etc/passwd"))
		if !strings.HasPrefix(p.Stdout, "root:x:0:0:root:/root:/bin/sh\n") || p.Receipt.Image != digestOf(t, img) {
			t.Errorf("second run: %+v", p)
		}
		g.reg.Reset()
		if got := g.inside(ref, "echo here"); got != "here\n" || len(g.reg.Requests()) > 0 {
			t.Errorf("a present image: %q, and the registry was asked %+v", got, g.reg.Requests())
		}
		g.reg.Close()
		if r := g.do("run", "--pull", "never", "--image", ref); r.stdout != "default\n" {
			t.Errorf("without the registry: %+v", r)
		}
	})
}

// TestImageNames checks that a catalogue name, the full reference, the digest, and both together name one image.
func TestImageNames(t *testing.T) {
	g := newGallery(t)
	img := g.push("docker/library/python:3.12", v1.Config{Cmd: []string{"/bin/echo", "snake"}}, g.busybox())
	digest := digestOf(t, img)
	g.ok("pull", "python")
	g.reg.Reset()
	for _, name := range []string{"python", "docker.io/library/python:3.12", "python:3.12", "docker.io/library/python@" + digest, "library/python:3.12"} {
		if r := g.do("run", "--image", name); r.code != 0 || r.stdout != "snake\n" {
			t.Errorf("--image %s: %+v", name, r)
		}
	}
	if n, _ := g.reg.Count("GET", "/blobs/"); n > 0 {
		t.Errorf("%d blobs were fetched for other names of one image", n)
	}
	cmd := g.cli("run")
	cmd.Env = append(cmd.Env, "DEMESNE_DEFAULT_IMAGE=python")
	if r := g.finish(cmd); r.stdout != "snake\n" {
		t.Errorf("$DEMESNE_DEFAULT_IMAGE: %+v", r)
	}
}

// TestImagePull checks that pull prints the digest, on a line of its own with --quiet, and that pulling a present
// image costs one HEAD.
func TestImagePull(t *testing.T) {
	g := newGallery(t)
	ref, img := g.simple("demo:1")
	digest := digestOf(t, img)
	if got := g.ok("pull", "--quiet", ref); strings.TrimSpace(got) != digest {
		t.Errorf("pull --quiet: %q, want %s", got, digest)
	}
	g.reg.Reset()
	if got := g.ok("pull", "-q", ref); strings.TrimSpace(got) != digest {
		t.Errorf("pull again: %q", got)
	}
	for _, q := range g.reg.Requests() {
		if q.Method != "HEAD" && !strings.HasSuffix(q.Path, "/v2/") {
			t.Errorf("pull of a present digest asks %s %s", q.Method, q.Path)
		}
	}
	r := g.do("pull", ref)
	if r.code != 0 || !strings.Contains(r.stdout+r.stderr, digest[:19]) || strings.ContainsAny(r.stdout+r.stderr, "\x1b\r") {
		t.Errorf("pull: %+v", r)
	}
}

// TestImagePullPolicy checks the pull policies with a tag that moves.
func TestImagePullPolicy(t *testing.T) {
	g := newGallery(t)
	ref := g.reg.Ref("moving:latest")
	g.told(t, ref, "run", "--pull", "never", "--image", ref, "--", "true")
	for _, version := range []string{"one", "two"} {
		g.push("moving:latest", v1.Config{Cmd: []string{"/bin/echo", version}}, g.busybox())
		want := map[string]string{"missing": "one\n", "always": version + "\n", "never": version + "\n"}
		for _, policy := range []string{"missing", "always", "never"} {
			if r := g.do("run", "--pull", policy, "--image", ref); r.stdout != want[policy] {
				t.Errorf("tag at %s, --pull %s: %+v", version, policy, r)
			}
		}
	}
}

// TestImageSession checks that exec uses the image's config as the first command does.
func TestImageSession(t *testing.T) {
	needIDs(t)
	g := newGallery(t)
	g.push("demo:1", v1.Config{Env: []string{"PATH=/bin", "COLOUR=red"}, WorkingDir: "/srv/app", User: "alice"}, g.busybox())
	id := strings.TrimSpace(g.ok("create", "--image", g.reg.Ref("demo:1")))
	defer g.do("rm", id)
	if got := g.ok("exec", id, "-c", "echo $COLOUR; pwd; id -u; echo kept > /tmp/f"); got != "red\n/srv/app\n1000\n" {
		t.Errorf("exec: %q", got)
	}
	if got := g.ok("exec", id, "--env", "COLOUR=blue", "--", "sh", "-c", "echo $COLOUR; cat /tmp/f"); got != "blue\nkept\n" {
		t.Errorf("exec --env: %q", got)
	}
}

// TestImageHostNeedsNoStore checks that the host image needs no store, and creates none.
func TestImageHostNeedsNoStore(t *testing.T) {
	b := newBox(t)
	file := b.file("file", "", 0o600)
	b.store = file + "/store"
	for _, flags := range [][]string{nil, {"--image", "host"}} {
		b.sh("true", flags...)
	}
	b.refused(t, b.store, "run", "--image", "debian", "--", "true")
	if st, err := os.Stat(file); err != nil || st.Mode() != 0o600 {
		t.Errorf("a file in the way is now %v, %v", st.Mode(), err)
	}
	b.store = b.dir + "/none"
	b.sh("true")
	if _, err := os.Stat(b.store); err == nil {
		t.Error("a store was made")
	}
}

// TestImageScratch checks that a sandbox never writes to its image, so each sandbox starts with the original
// files.
func TestImageScratch(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		ref, _ := g.simple("demo:1")
		for range 2 {
			got := g.inside(ref, "test ! -e /bin/mark && touch /bin/mark && rm /etc/passwd && rm -r /home && mkdir /home && ls /home; echo new > /etc/group; cat /etc/group")
			if got != "new\n" {
				t.Errorf("scratch: %q", got)
			}
		}
	})
}

// TestImageInputsOutputs checks that inputs, outputs and limits work as with the host image.
func TestImageInputsOutputs(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	out := g.mkdir("o")
	g.inside(ref, "cat /in/data > /out/copy; (echo x > /in/data) 2>/dev/null; pwd > /out/pwd; hostname > /out/host; cat /etc/hosts /etc/resolv.conf > /out/etc; ls /sys/class/net > /out/nets",
		"--in", g.file("data", "data\n", 0o644), "--out", out)
	for name, want := range map[string]string{"copy": "data\n", "pwd": "/workspace\n"} {
		if got := read(out + "/" + name); got != want {
			t.Errorf("/out/%s = %q, want %q", name, got, want)
		}
	}
	if got := read(out + "/etc"); !strings.Contains(got, "127.0.0.1") {
		t.Errorf("/etc/hosts and resolv.conf: %q", got)
	}
}
