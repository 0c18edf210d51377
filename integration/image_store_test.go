package integration

import (
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestImagesListed checks that images lists the stored images with their sizes, and counts layers that two images
// share as shared.
func TestImagesListed(t *testing.T) {
	g := newGallery(t)
	if all := g.listed(); len(all) != 0 {
		t.Errorf("an empty store lists %+v", all)
	}
	base := g.busybox()
	a := g.push("a:1", v1.Config{}, base)
	g.push("b:1", v1.Config{}, base, []fixture.Entry{fixture.File("extra", strings.Repeat("x", 1000))})
	g.ok("pull", g.reg.Ref("a:1"), g.reg.Ref("b:1"))
	g.reg.Close()
	all := g.listed()
	if len(all) != 2 {
		t.Fatalf("images: %+v", all)
	}
	i := slices.IndexFunc(all, func(l listed) bool { return l.Digest == digestOf(t, a) })
	if i < 0 || !slices.Contains(all[i].Names, g.reg.Ref("a:1")) || all[i].Size < 100000 || all[i].Shared <= 0 || all[i].Shared > all[i].Size || all[i].Unpacked < all[i].Size || all[i].Used == "" {
		t.Errorf("a: %+v", all)
	}
	table := g.ok("images")
	for _, want := range []string{"NAME", "DIGEST", "SIZE", g.reg.Ref("a:1"), g.reg.Ref("b:1"), digestOf(t, a)[7:19]} {
		if !strings.Contains(table, want) {
			t.Errorf("images says no %q:\n%s", want, table)
		}
	}
}

// TestImagesShareLayers checks that a second image fetches only the layers that the first did not bring.
func TestImagesShareLayers(t *testing.T) {
	g := newGallery(t)
	base := g.busybox()
	g.push("a:1", v1.Config{}, base)
	g.ok("pull", g.reg.Ref("a:1"))
	trees := len(g.trees())
	g.push("b:1", v1.Config{Env: []string{"PATH=/bin"}}, base, []fixture.Entry{fixture.File("extra", "b")})
	g.reg.Reset()
	g.ok("pull", g.reg.Ref("b:1"))
	if n, bytes := g.reg.Count("GET", "/blobs/"); n != 2 || bytes > 5000 {
		t.Errorf("%d blobs of %d bytes, want the config and a small layer", n, bytes)
	}
	if n := len(g.trees()); n != trees+1 {
		t.Errorf("%d trees, then %d", trees, n)
	}
	if got := g.inside(g.reg.Ref("b:1"), "cat /extra"); got != "b" {
		t.Errorf("b: %q", got)
	}
}

// TestImagesRemoved checks that rmi removes a name, and the image with its last name, but never an image in use
// by a sandbox.
func TestImagesRemoved(t *testing.T) {
	g := newGallery(t)
	ref, img := g.simple("demo:1")
	g.ok("pull", ref)
	id := strings.TrimSpace(g.ok("create", "--image", ref))
	g.told(t, "use", "rmi", ref)
	if got := g.ok("exec", id, "--", "cat", "/etc/group"); !strings.Contains(got, "alice") {
		t.Errorf("after the refusal: %q", got)
	}
	g.ok("rm", id)
	eventually(t, "the sandbox to be gone", func() bool { return len(descendants()) == 0 })
	g.ok("rmi", ref)
	if all := g.listed(); len(all) != 0 {
		t.Errorf("after rmi: %+v", all)
	}
	g.told(t, ref, "rmi", ref)
	g.ok("gc")
	if size := du(g.store + "/blobs"); size > 0 {
		t.Errorf("%d bytes of blobs after rmi and gc", size)
	}
	if trees := g.trees(); len(trees) > 0 {
		t.Errorf("trees after rmi and gc: %q", trees)
	}
	g.ok("pull", ref)
	g.ok("rmi", digestOf(t, img))
}

// TestImagesVerifiedAndRepaired checks that verify finds each changed blob and names it, and that pulling again
// repairs the image.
func TestImagesVerifiedAndRepaired(t *testing.T) {
	g := newGallery(t)
	ref, img := g.simple("demo:1")
	g.ok("pull", ref)
	g.ok("images", "check")
	if n := g.damage(1000); n != 1 {
		t.Fatalf("%d blobs of the store are long", n)
	}
	layers, _ := img.Layers()
	bad, _ := layers[0].Digest()
	r := g.do("images", "check")
	if r.code == 0 || !strings.Contains(r.stdout+r.stderr, bad.Hex[:12]) {
		t.Errorf("verify of a damaged blob: %+v", r)
	}
	g.ok("pull", ref)
	g.ok("images", "check")
	// No pull is proposed for names that were made here, from files, an archive or a sandbox.
	g.ok("save", "-o", g.dir+"/demo.tar", ref)
	g.ok("rmi", ref)
	g.ok("import", g.dir+"/demo.tar", "local/loaded:1")
	g.ok("create", "--name", "box", "--image", "local/loaded:1")
	g.ok("exec", "box", "-c", "touch /new")
	g.ok("commit", "box", "local/committed:1")
	g.ok("rm", "box")
	g.damage(1000)
	if r := g.do("images", "check"); strings.Contains(r.stdout, "demesne pull") || !strings.Contains(r.stdout, "local/loaded:1 was made here") || !strings.Contains(r.stdout, "local/committed:1 was made here") {
		t.Errorf("check of images that were made here: %+v", r)
	}
	g.ok("rmi", "local/loaded:1", "local/committed:1")
	g.ok("pull", ref)
	if r := g.do("run", "--image", ref); r.stdout != "default\n" {
		t.Errorf("after the repair: %+v", r)
	}
}

// TestImagesCorruptedStore checks that a store with an invalid index or manifest is reported as such.
func TestImagesCorruptedStore(t *testing.T) {
	g := newGallery(t)
	ref, _ := g.simple("demo:1")
	g.ok("pull", ref)
	index := g.store + "/index.json"
	good := read(index)
	for _, bad := range []string{"", "{", `{"manifests":[{"digest":"sha256:../../etc","size":-1}]}`, strings.Repeat("[", 1<<20), `{"manifests":null,"schemaVersion":2}x`} {
		if err := os.WriteFile(index, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		g.told(t, "index", "run", "--image", ref, "--", "true")
	}
	os.WriteFile(index, []byte(good), 0o644)
	if n := g.damage(0); n < 3 {
		t.Fatalf("%d blobs", n)
	}
	g.told(t, "", "run", "--pull", "never", "--image", ref, "--", "true")
	if r := g.do("images", "check"); r.code == 0 {
		t.Errorf("verify: %+v", r)
	}
	g.ok("pull", ref)
	if r := g.do("run", "--image", ref); r.stdout != "default\n" {
		t.Errorf("after the repair: %+v", r)
	}
}

func du(dir string) (n int64) {
	for _, name := range names(dir) {
		st, err := os.Lstat(dir + "/" + name)
		switch {
		case err != nil:
		case st.IsDir():
			n += du(dir + "/" + name)
		default:
			n += st.Size()
		}
	}
	return n
}
