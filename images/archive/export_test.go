package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"

	"demesne/images"
	"demesne/images/oci"
)

// add adds an image with the given layers to the store.
func add(t *testing.T, s *images.Store, name string, layers ...[]byte) *images.Image {
	t.Helper()
	ctx := context.Background()
	var ids []oci.Digest
	var all []oci.Descriptor
	for i, b := range layers {
		kind := []string{"", "gzip", "zstd"}[i%3]
		d, err := put(ctx, s, compressed(t, b, kind), mediaTypes[map[string]format{"": plain, "gzip": gzipped, "zstd": zstandard}[kind]])
		if err != nil {
			t.Fatal(err)
		}
		all, ids = append(all, d), append(ids, oci.DigestOf(b))
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Cmd": []string{"/x"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := put(ctx, s, config, typeConfig)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := marshalManifest(c, all)
	if err != nil {
		t.Fatal(err)
	}
	m, err := put(ctx, s, raw, oci.TypeOCIManifest)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Add(ctx, images.Record{Ref: ref(t, name), Manifest: m})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func headers(t *testing.T, s *images.Store, img *images.Image) []*tar.Header {
	t.Helper()
	var b bytes.Buffer
	if err := Export(context.Background(), s, img, &b); err != nil {
		t.Fatal(err)
	}
	var all []*tar.Header
	for in := tar.NewReader(&b); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// TestExport checks that the export has the files that overlayfs would show.
func TestExport(t *testing.T) {
	const dir, link, sym = tar.TypeDir, tar.TypeLink, tar.TypeSymlink
	for _, c := range []struct {
		name   string
		layers [][]file
		want   []string
	}{
		{"one over another", [][]file{
			{{name: "./", kind: dir}, {name: "etc", kind: dir}, {name: "etc/a", text: "1"}, {name: "etc/b", text: "1"}},
			{{name: "etc", kind: dir}, {name: "etc/b", text: "2"}, {name: "etc/c", text: "2"}},
		}, []string{"./", "etc/a 1", "etc/", "etc/b 2", "etc/c 2"}},
		{"a whiteout", [][]file{
			{{name: "a", text: "1"}, {name: "d", kind: dir}, {name: "d/x", text: "1"}},
			{{name: ".wh.a"}, {name: ".wh.d"}},
		}, nil},
		{"a whiteout and the name again", [][]file{
			{{name: "d", kind: dir}, {name: "d/x", text: "1"}},
			{{name: "d", kind: dir}, {name: "d/y", text: "2"}, {name: ".wh.d"}},
		}, []string{"d/", "d/y 2"}},
		{"an opaque directory", [][]file{
			{{name: "d", kind: dir}, {name: "d/x", text: "1"}, {name: "e", text: "1"}},
			{{name: "d/y", text: "2"}, {name: "d/.wh..wh..opq"}, {name: "d", kind: dir}},
		}, []string{"e 1", "d/y 2", "d/"}},
		{"a file over a directory", [][]file{
			{{name: "d", kind: dir}, {name: "d/x", text: "1"}},
			{{name: "d", text: "2"}},
		}, []string{"d 2"}},
		{"a directory over a file", [][]file{
			{{name: "d", text: "1"}},
			{{name: "d/x", text: "2"}},
		}, []string{"d/x 2"}},
		{"a link over a directory", [][]file{
			{{name: "lib", kind: dir}, {name: "lib/x", text: "1"}},
			{{name: "lib", kind: sym, link: "usr/lib"}},
		}, []string{"lib -> usr/lib"}},
		{"hard links", [][]file{
			{{name: "a", text: "1"}, {name: "b", kind: link, link: "a"}, {name: "c", kind: link, link: "b"}},
		}, []string{"a 1", "b = a", "c = a"}},
		{"hard links to what is replaced", [][]file{
			{{name: "a", text: "1"}, {name: "b", kind: link, link: "a"}, {name: "c", kind: link, link: "a"}},
			{{name: "a", text: "2"}},
		}, []string{"b 1", "c = b", "a 2"}},
		{"hard links to what is gone", [][]file{
			{{name: "a", text: "1"}, {name: "b", kind: link, link: "a"}, {name: "c", kind: link, link: "./a"}},
			{{name: ".wh.a"}, {name: ".wh.b"}},
		}, []string{"c 1"}},
		{"a hard link into the layer below", [][]file{
			{{name: "a", text: "1"}},
			{{name: "b", kind: link, link: "/a"}},
		}, []string{"a 1", "b = a"}},
		{"a hard link to nothing", [][]file{
			{{name: "a", text: "1"}, {name: "b", kind: link, link: "../../etc/passwd"}},
		}, []string{"a 1"}},
		{"a hard link to nothing beside one to the first entry", [][]file{
			{{name: "a", text: "1"}, {name: "b", kind: link, link: "a"}, {name: "c", kind: link, link: "none"}},
		}, []string{"a 1", "b = a"}},
		{"a name twice", [][]file{
			{{name: "a", text: "1"}, {name: "a", text: "2"}},
		}, []string{"a 2"}},
		{"names that climb", [][]file{
			{{name: "../../a", text: "1"}, {name: "/b", text: "1"}, {name: "d/../c", text: "1"}},
		}, []string{"a 1", "b 1", "c 1"}},
		{"whiteouts of nothing", [][]file{
			{{name: ".wh."}, {name: ".wh..wh..opq"}, {name: "x/.wh..wh..opq"}, {name: "a", text: "1"}},
		}, []string{"a 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := openStore(t)
			var layers [][]byte
			for _, files := range c.layers {
				layers = append(layers, aTar(t, files...))
			}
			if got := exported(t, s, add(t, s, "mine", layers...)); !slices.Equal(got, c.want) {
				t.Errorf("%q, not %q", got, c.want)
			}
		})
	}
}

// TestExportManyLinks checks that a file with many removed names and one remaining name takes linear time.
func TestExportManyLinks(t *testing.T) {
	const many = 20_000 // quadratic time would take minutes
	names := []file{{name: "d/f", text: "x"}}
	for i := range many {
		names = append(names, file{name: fmt.Sprintf("d/%d", i), kind: tar.TypeLink, link: "d/f"})
	}
	last := file{name: "last", kind: tar.TypeLink, link: "d/f"}
	s := openStore(t)
	img := add(t, s, "mine", aTar(t, file{name: "below"}), aTar(t, append(names, last)...), aTar(t, file{name: "d/.wh..wh..opq"}))
	if got := exported(t, s, img); !slices.Equal(got, []string{"below ", "last x"}) {
		t.Errorf("%d entries: %.200q", len(got), got)
	}
}

// TestExportCorrupt checks that a layer with the wrong DiffID is an error.
func TestExportCorrupt(t *testing.T) {
	s := openStore(t)
	b := aTar(t, file{name: "a", text: "1"})
	img := add(t, s, "mine", b)
	img.Layers[0].DiffID = oci.DigestOf(nil)
	if err := Export(context.Background(), s, img, io.Discard); !errors.Is(err, images.ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

// FuzzMerge checks that no pair of layers makes Export panic or write an invalid tar archive.
func FuzzMerge(f *testing.F) {
	var t testing.T
	f.Add(aTar(&t, file{name: "a", text: "1"}, file{name: "b", kind: tar.TypeLink, link: "a"}), aTar(&t, file{name: ".wh.a"}))
	f.Add(aTar(&t, file{name: "d/x", text: "1"}), aTar(&t, file{name: "d", text: "2"}, file{name: "d/.wh..wh..opq"}))
	f.Fuzz(func(t *testing.T, below, above []byte) {
		m := newMerge()
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		layers := [][]byte{below, above}
		for _, l := range layers {
			if err := m.layer(tar.NewReader(bytes.NewReader(l))); err != nil {
				return
			}
		}
		for i, l := range layers {
			if err := m.write(i, tar.NewReader(bytes.NewReader(l)), w); err != nil {
				return
			}
		}
		if w.Close() != nil {
			return
		}
		seen := map[string]bool{}
		for in := tar.NewReader(&out); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if seen[clean(h.Name)] {
				t.Errorf("%q comes twice", h.Name)
			}
			seen[clean(h.Name)] = true
		}
	})
}

// TestSpool reads a kept layer without the store, and only once.
func TestSpool(t *testing.T) {
	store, err := images.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	s := newSpool(store)
	if n, err := s.Write([]byte("a layer")); n != 7 || err != nil {
		t.Fatalf("write: %d %v", n, err)
	}
	read := func(r io.Reader) error {
		b, err := io.ReadAll(r)
		if string(b) != "a layer" {
			t.Errorf("read %q", b)
		}
		return err
	}
	if err := s.read(t.Context(), nil, oci.Layer{}, read); err != nil || s.File != nil {
		t.Errorf("read: %v; the file is still open: %t", err, s.File != nil)
	}
	f, err := temporary(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s.to, s.File = failing{}, f // no room
	if n, err := s.Write([]byte("lost")); n != 4 || err != nil || s.File != nil {
		t.Errorf("without room: %d %v, file %v", n, err, s.File)
	}
	if err := s.read(t.Context(), store, oci.Layer{Digest: oci.DigestOf(nil)}, read); err == nil {
		t.Error("a layer without a kept copy was not read from the store")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
