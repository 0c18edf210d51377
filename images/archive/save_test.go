package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
)

// saved saves an image as an archive and returns the path.
func saved(t *testing.T, s *images.Store, img *images.Image, name, format string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Save(context.Background(), s, img, ref(t, name), format, &b); err != nil {
		t.Fatal(err)
	}
	return write(t, b.Bytes())
}

// contents reads the image of a source. It returns its manifest and digest, and checks each blob of the
// manifest.
func contents(t *testing.T, src *Source) (oci.Digest, *oci.Manifest) {
	t.Helper()
	raw, _, err := src.Unparsed(nil).Manifest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range blobs(m) {
		for _, offset := range []int64{0, d.Size / 2, d.Size} {
			r, err := src.Blob(context.Background(), d, offset)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				t.Fatal(err)
			}
			if int64(len(b)) != d.Size-offset || offset == 0 && oci.DigestOf(b) != d.Digest {
				t.Errorf("blob %s from %d: %d bytes of %s", d.Digest, offset, len(b), oci.DigestOf(b))
			}
		}
	}
	return oci.DigestOf(raw), m
}

func open(t *testing.T, kind imageref.Kind, path, tag string) *Source {
	t.Helper()
	src, err := Open(context.Background(), kind, path, tag, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// TestSave checks that a saved archive is recognized and read back, also when compressed as a whole. An OCI
// archive has the same image, and a Docker archive has the same layers.
func TestSave(t *testing.T) {
	s := openStore(t)
	img := add(t, s, "o/n:1", aTar(t, file{name: "a", text: "1"}), aTar(t, file{name: "b", text: "2"}), aTar(t, file{name: "c", text: "3"}))
	for _, c := range []struct {
		format string
		kind   imageref.Kind
	}{{"oci", imageref.OCIArchive}, {"", imageref.OCIArchive}, {"docker", imageref.DockerArchive}} {
		for _, whole := range []string{"", "gzip", "zstd"} {
			path := saved(t, s, img, "o/n:1", c.format)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			path = write(t, compressed(t, b, whole))
			if kind, err := Recognize(path); err != nil || kind != c.kind {
				t.Errorf("%s, %s: it is %q, %v", c.format, whole, kind, err)
			}
			d, m := contents(t, open(t, c.kind, path, ""))
			if c.kind == imageref.OCIArchive && d != img.Digest {
				t.Errorf("%s, %s: the image is %s, not %s", c.format, whole, d, img.Digest)
			}
			for i, l := range m.Layers {
				if c.kind == imageref.DockerArchive && l.Digest != img.Layers[i].DiffID {
					t.Errorf("%s, %s: layer %d is %s, not %s", c.format, whole, i, l.Digest, img.Layers[i].DiffID)
				}
			}
			contents(t, open(t, c.kind, path, "docker.io/o/n:1"))
			if _, err := Open(context.Background(), c.kind, path, "other:2", t.TempDir()); err == nil {
				t.Errorf("%s: found a missing tag", c.format)
			}
		}
	}
	if err := Save(context.Background(), s, img, ref(t, "o/n:1"), "rar", io.Discard); err == nil {
		t.Error("saved as rar")
	}
}

// TestSaveCorrupt checks that a damaged blob is an error.
func TestSaveCorrupt(t *testing.T) {
	for _, format := range []string{"oci", "docker"} {
		s := openStore(t)
		img := add(t, s, "o/n:1", aTar(t, file{name: "a", text: "1"}))
		path := filepath.Join(s.Dir(), "blobs", "sha256", img.Layers[0].Digest.Encoded())
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[600] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Save(context.Background(), s, img, ref(t, "o/n:1"), format, io.Discard); !errors.Is(err, images.ErrCorrupt) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// TestOpenLayout checks that a directory is read like an archive, and that no link leads out of it.
func TestOpenLayout(t *testing.T) {
	s := openStore(t)
	img := add(t, s, "o/n:1", aTar(t, file{name: "a", text: "1"}))
	dir := filepath.Join(t.TempDir(), "layout")
	if err := os.CopyFS(dir, os.DirFS(s.Dir())); err != nil { // a store is an OCI layout
		t.Fatal(err)
	}
	if kind, err := Recognize(dir); err != nil || kind != imageref.OCILayout {
		t.Errorf("it is %q, %v", kind, err)
	}
	src := open(t, imageref.OCILayout, dir, "")
	if d, _ := contents(t, src); d != img.Digest {
		t.Errorf("the image is %s", d)
	}
	layer := filepath.Join(dir, "blobs", "sha256", img.Layers[0].Digest.Encoded())
	if err := errors.Join(os.Remove(layer), os.Symlink("/etc/passwd", layer)); err != nil {
		t.Fatal(err)
	}
	l := oci.Descriptor{Digest: img.Layers[0].Digest, Size: 1}
	if _, err := src.Blob(context.Background(), l, 0); err == nil {
		t.Error("a link out of the layout was followed")
	}
	// A manifest that does not match the digest in the index.
	if err := os.WriteFile(filepath.Join(dir, "blobs", "sha256", img.Digest.Encoded()), []byte(`{"schemaVersion":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), imageref.OCILayout, dir, "", t.TempDir()); err == nil {
		t.Error("a manifest of another digest was opened")
	}
}

// TestOpenDockerLinks checks that links in place of equal layers, as in old archives, are resolved. No link
// leads out of the archive.
func TestOpenDockerLinks(t *testing.T) {
	layer := string(aTar(t, file{name: "a", text: "1"}))
	id := oci.DigestOf([]byte(layer))
	config := fmt.Sprintf(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[%q,%q]}}`, id, id)
	one, two := strings.Repeat("1", 64), strings.Repeat("2", 64)
	manifest := fmt.Sprintf(`[{"Config":"c.json","RepoTags":["n:1"],"Layers":["%s/layer.tar","%s/layer.tar"]}]`, one, two)
	b := aTar(t, file{name: one + "/layer.tar", text: layer}, file{name: two + "/layer.tar", kind: tar.TypeSymlink, link: "../" + one + "/layer.tar"},
		file{name: "c.json", text: config}, file{name: "manifest.json", text: manifest})
	if _, m := contents(t, open(t, imageref.DockerArchive, write(t, b), "n:1")); len(m.Layers) != 2 {
		t.Errorf("%d layers", len(m.Layers))
	}
	for _, bad := range []string{"../../../../etc/passwd", "/etc/passwd", two + "/layer.tar", "nothing"} {
		b := aTar(t, file{name: two + "/layer.tar", kind: tar.TypeSymlink, link: bad}, file{name: "c.json", text: config}, file{name: "manifest.json", text: manifest})
		var invalid *InvalidError
		if _, err := Open(context.Background(), imageref.DockerArchive, write(t, b), "", t.TempDir()); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestPick checks which image of a layout a tag selects, and the errors.
func TestPick(t *testing.T) {
	named := func(name string) oci.Descriptor {
		return oci.Descriptor{Digest: oci.DigestOf([]byte(name)), Annotations: map[string]string{annotationName: name}}
	}
	for _, c := range []struct {
		have []oci.Descriptor
		tag  string
		want string // name of the selected image
		err  string // part of the error
	}{
		{have: []oci.Descriptor{named("a")}, want: "a"},
		{have: []oci.Descriptor{named("a"), named("b")}, tag: "b", want: "b"},
		{have: []oci.Descriptor{named("a"), named("b")}, err: `2 images: name one of "a, b"`},
		{have: []oci.Descriptor{named("a"), named("b")}, tag: "c", err: `no image "c": the archive has "a, b"`},
		{err: "0 images"},
	} {
		got, err := pick(index{Manifests: c.have}, c.tag)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v", c.tag, err)
			}
			continue
		}
		if err != nil || got.Digest != oci.DigestOf([]byte(c.want)) {
			t.Errorf("%q: %v, %v", c.tag, got, err)
		}
	}
}

// TestUnparsedInstance checks that an image of an index is compared with its digest.
func TestUnparsedInstance(t *testing.T) {
	s := openStore(t)
	img := add(t, s, "o/n:1", aTar(t, file{name: "a", text: "1"}))
	src := open(t, imageref.OCIArchive, saved(t, s, img, "o/n:1", "oci"), "")
	good := digest.Digest(img.Digest)
	if raw, _, err := src.Unparsed(&good).Manifest(context.Background()); err != nil || oci.DigestOf(raw) != img.Digest {
		t.Errorf("%v", err)
	}
	for _, bad := range []digest.Digest{"", "sha256:short", digest.Digest(oci.DigestOf(nil))} {
		if _, _, err := src.Unparsed(&bad).Manifest(context.Background()); err == nil {
			t.Errorf("%q was found", bad)
		}
	}
	if !slices.Equal(img.Names, []string{"docker.io/o/n:1"}) {
		t.Errorf("%q", img.Names)
	}
}

// FuzzOpen checks that no file makes Open panic or read outside the archive.
func FuzzOpen(f *testing.F) {
	var t testing.T
	f.Add(aTar(&t, file{name: "manifest.json", text: `[{"Config":"c","Layers":["l"]}]`}, file{name: "c", text: `{"rootfs":{"diff_ids":[]}}`}))
	f.Add(aTar(&t, file{name: "oci-layout", text: layoutText}, file{name: "index.json", text: `{"manifests":[{"digest":"x"}]}`}))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := write(t, b)
		kind, err := Recognize(path)
		if err != nil || kind == imageref.Directory {
			return
		}
		src, err := Open(context.Background(), kind, path, "", t.TempDir())
		if err == nil {
			src.Close()
		}
	})
}
