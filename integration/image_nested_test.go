package integration

import (
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

// TestImageNoNamespaces checks that without namespaces an image is refused with a hint, and no other root is used
// instead.
func TestImageNoNamespaces(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("pull", ref)
	r := g.finish(g.withoutNamespaces(t)("run", "--image", ref))
	if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "hint: ") {
		t.Errorf("no namespaces: %+v", r)
	}
}
