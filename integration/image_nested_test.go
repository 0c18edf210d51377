package integration

import (
	"os"
	"strings"
	"testing"
)

// TestImageNested runs an image inside a sandbox that allows nesting, from a store of its own.
func TestImageNested(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		ref, _ := g.simple("demo:1")
		g.ok("pull", ref)
		file := g.mkdir("saved") + "/demo.tar"
		g.ok("save", ref, "-o", file)
		got := g.ok("run", "--nesting", "--in", bin+":bin", "--in", file+":demo.tar", "--", "sh", "-c",
			`export DEMESNE_IMAGE_STORE=/tmp/i HOME=/tmp XDG_RUNTIME_DIR=/tmp; PATH=/in/bin:$PATH; demesne import /in/demo.tar demo && demesne run --image demo && demesne run --image demo -c 'id -u; touch /bin/x && ls /bin/x' && demesne gc --all >&2`)
		if !strings.HasSuffix(got, "default\n0\n/bin/x\n") {
			t.Errorf("an image in a sandbox: %q", got)
		}
	})
}

// TestImageInImage runs demesne inside an image, and an image inside that.
func TestImageInImage(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("pull", ref)
	file := g.dir + "/demo.tar"
	g.ok("save", ref, "-o", file)
	got := g.inside(ref, `export DEMESNE_IMAGE_STORE=/tmp/i HOME=/tmp XDG_RUNTIME_DIR=/tmp; /in/bin/demesne import /in/demo.tar demo && /in/bin/demesne run --image demo`,
		"--nesting", "--in", bin+":bin", "--in", file+":demo.tar")
	if !strings.HasSuffix(got, "default\n") {
		t.Errorf("an image in an image: %q", got)
	}
}

// TestImageNoNamespaces checks that without namespaces no other root is used instead of the image's. It is refused with a
// hint, or copied for a user who has the rights for chroot(2).
func TestImageNoNamespaces(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("pull", ref)
	demesne := g.withoutNamespaces(t)
	r := g.finish(demesne("run", "--image", ref))
	switch {
	case os.Getuid() == 0 && g.uid < 0:
		if r.code != 0 || r.stdout != "default\n" || !strings.Contains(r.stderr, "isolation is minimal") {
			t.Errorf("no namespaces: %+v", r)
		}
		if r := g.finish(demesne("gc", "--all")); r.code != 0 { // files of this level's only id
			t.Errorf("gc: %+v", r)
		}
	case r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "hint: "):
		t.Errorf("no namespaces: %+v", r)
	}
}
