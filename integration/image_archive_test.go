package integration

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// TestImageSaveImport checks that an image that is saved and imported again has the same digest.
func TestImageSaveImport(t *testing.T) {
	g := newGallery(t)
	ref, img := g.simple("demo:1")
	g.ok("pull", ref)
	for _, format := range []string{"oci", "docker"} {
		file := g.dir + "/" + format + ".tar"
		g.ok("save", ref, "-o", file, "--format", format)
		g.ok("import", file, "copy-"+format)
		i := slices.IndexFunc(g.listed(), func(l listed) bool { return strings.Contains(strings.Join(l.Names, " "), "copy-"+format) })
		if i < 0 {
			t.Fatalf("%s: not in %+v", format, g.listed())
		}
		if got := g.listed()[i].Digest; format == "oci" && got != digestOf(t, img) {
			t.Errorf("saved and imported: %s, was %s", got, digestOf(t, img))
		}
		if r := g.do("run", "--image", "copy-"+format); r.stdout != "default\n" {
			t.Errorf("run of the %s copy: %+v", format, r)
		}
		if r := g.do("run", "--image", format+"-archive:"+file); r.stdout != "default\n" {
			t.Errorf("run of %s-archive: %+v", format, r)
		}
	}
	g.ok("images", "check")
}

// TestImageSaveIsStandard checks that other tools can read what save wrote.
func TestImageSaveIsStandard(t *testing.T) {
	g := newGallery(t)
	skopeo := program(t, "skopeo")
	ref, img := g.simple("demo:1")
	g.ok("pull", ref)
	for _, format := range []string{"oci", "docker"} {
		file := g.dir + "/" + format + ".tar"
		g.ok("save", ref, "-o", file, "--format", format)
		r := g.finish(g.command(skopeo, "inspect", "--format", "{{.Digest}} {{.Architecture}}", format+"-archive:"+file))
		if r.code != 0 || format == "oci" && !strings.HasPrefix(r.stdout, digestOf(t, img)) {
			t.Errorf("skopeo reads %s: %+v", format, r)
		}
	}
}

// TestImageImportExport checks that a tar or directory of a root becomes an image of one layer, and that export
// reverses this.
func TestImageImportExport(t *testing.T) {
	g := newGallery(t)
	raw, err := fixture.Tar(append(g.busybox(), fixture.File("mark", "imported\n"), fixture.Link("ln", "mark"))...)
	if err != nil {
		t.Fatal(err)
	}
	file := g.file("root.tar", string(raw), 0o644)
	g.ok("import", file, "mine")
	if got := g.inside("mine", "cat /mark /ln; stat -c %u:%g /home/alice"); !strings.HasPrefix(got, "imported\nimported\n") {
		t.Errorf("imported tar: %q", got)
	}
	out := g.dir + "/out.tar"
	g.ok("export", "mine", "-o", out)
	tree := g.mkdir("tree")
	if r := g.finish(g.command("/bin/tar", "--no-same-owner", "-C", tree, "-xf", out)); r.code != 0 || read(tree+"/ln") != "imported\n" {
		t.Errorf("export: %+v, %q", r, read(tree+"/ln"))
	}
	if piped := g.ok("export", "mine"); len(piped) < 100000 || piped != read(out) {
		t.Errorf("export to stdout: %d bytes, to a file: %d", len(piped), len(read(out)))
	}
	g.ok("import", tree, "again")
	if got := g.inside("again", "cat /mark"); got != "imported\n" {
		t.Errorf("imported directory: %q", got)
	}
	g.file("root.tar.gz", gzipped(t, raw), 0o644)
	g.ok("import", g.dir+"/root.tar.gz", "zipped")
	if got := g.inside("zipped", "cat /mark"); got != "imported\n" {
		t.Errorf("imported tar.gz: %q", got)
	}
}

// TestImageExportMerges checks that export writes the merged tree, without files that an upper layer removed.
func TestImageExportMerges(t *testing.T) {
	g := newGallery(t)
	img := g.push("layers:1", v1.Config{}, []fixture.Entry{fixture.Dir("d"), fixture.File("d/gone", "x"), fixture.File("d/kept", "old")},
		[]fixture.Entry{fixture.Gone("d/gone"), fixture.File("d/kept", "new")})
	g.ok("pull", g.reg.Ref("layers:1"))
	out := g.dir + "/out.tar"
	g.ok("export", digestOf(t, img), "-o", out)
	r := g.finish(g.command("/bin/tar", "-tf", out))
	if strings.Contains(r.stdout, "gone") || strings.Contains(r.stdout, ".wh.") || strings.Count(r.stdout, "d/kept") != 1 {
		t.Errorf("export: %q", r.stdout)
	}
}

// TestImageLocal checks that images from dir: and oci:, the latter with a tag too, run without a registry.
func TestImageLocal(t *testing.T) {
	withIDs(t, func(t *testing.T, g *gallery, one bool) {
		g.reg.Close()
		tree := g.mkdir("tree")
		for _, d := range []string{"bin", "tmp", "etc"} {
			g.mkdir("tree/" + d)
		}
		bb := g.busybox()[6].Body
		for _, a := range []string{"sh", "cat", "touch", "ls", "id"} {
			os.WriteFile(tree+"/bin/"+a, []byte(bb), 0o755)
		}
		if got := g.inside("dir:"+tree, "id -u; touch /bin/x /etc/x && ls /bin/x"); got != "0\n/bin/x\n" {
			t.Errorf("dir: %q", got)
		}
		if _, err := os.Lstat(tree + "/bin/x"); err == nil || len(names(tree)) != 3 {
			t.Errorf("the directory was written to: %q", names(tree))
		}
		img := g.image(v1.Config{Cmd: []string{"/bin/echo", "oci"}}, g.busybox())
		lay, err := layout.Write(g.dir+"/layout", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": "v1"}}}))
		if err != nil {
			t.Fatal(err)
		}
		filepath.WalkDir(string(lay), func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o755) })
		for _, ref := range []string{"oci:" + string(lay), "oci:" + string(lay) + ":v1"} {
			if r := g.do("run", "--image", ref); r.stdout != "oci\n" {
				t.Errorf("%s: %+v", ref, r)
			}
		}
		g.told(t, "v2", "run", "--image", "oci:"+string(lay)+":v2")
	})
}

// TestImageImportRefused checks that import refuses input that is not a root file system, and leaves no files of it.
func TestImageImportRefused(t *testing.T) {
	g := newGallery(t)
	for _, args := range [][]string{
		{"import", "/etc/passwd", "x"}, {"import", g.dir + "/nosuch", "x"}, {"import", g.file("empty", "", 0o644), "x"}, {"import", g.mkdir("d")}, {"import", g.mkdir("d"), "UPPER"},
		{"import", g.mkdir("d"), "host"}, {"save", "nosuch:1", "-o", g.dir + "/f"}, {"export", "nosuch:1", "-o", g.dir + "/f"}, {"save", "nosuch:1"},
	} {
		g.told(t, "", args...)
	}
	if _, err := os.Stat(g.dir + "/f"); err == nil {
		t.Error("a file was still made")
	}
	if all := g.listed(); len(all) > 0 {
		t.Errorf("in the store: %+v", all)
	}
}

func gzipped(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(raw)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
