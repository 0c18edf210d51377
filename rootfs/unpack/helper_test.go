package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/go-digest"

	"demesne/rootfs/layers"
)

const gzipType = "application/vnd.oci.image.layer.v1.tar+gzip"

// An entry is one of an archive. The zero owner is root, the zero mode 0644 or 0755.
type entry struct {
	name, link, body string
	kind             byte
	mode             int64
	uid, gid         int
	xattrs           map[string]string
	pax              map[string]string
}

func (e entry) header() *tar.Header {
	h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Uid: e.uid, Gid: e.gid,
		Size: int64(len(e.body)), PAXRecords: map[string]string{}, Format: tar.FormatPAX}
	if e.kind == 0 {
		h.Typeflag = tar.TypeReg
	}
	if e.mode == 0 {
		h.Mode = 0o644
		if e.kind == tar.TypeDir {
			h.Mode = 0o755
		}
	}
	for name, value := range e.xattrs {
		h.PAXRecords["SCHILY.xattr."+name] = value
	}
	for name, value := range e.pax {
		h.PAXRecords[name] = value
	}
	return h
}

// archive returns a tar of the entries.
func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(e.header()); err != nil {
			t.Fatalf("entry %q: %v", e.name, err)
		}
		if _, err := w.Write([]byte(e.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w.Write(data)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A store is an image store with blobs, and a file beside it that no layer may touch.
type store struct {
	t      testing.TB
	dir    string
	beside string
	limits Limits
	events []Event
}

func newStore(t testing.TB) *store {
	t.Helper()
	s := &store{t: t, dir: filepath.Join(t.TempDir(), "store")}
	s.beside = filepath.Join(filepath.Dir(s.dir), "beside")
	for _, dir := range []string{s.dir, s.beside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.beside+"/file", []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

// add puts a blob of an archive into the store.
func (s *store) add(blob, tar []byte) Layer {
	s.t.Helper()
	l := Layer{Digest: digest.FromBytes(blob), DiffID: digest.FromBytes(tar), Size: int64(len(blob)), MediaType: gzipType}
	if err := os.WriteFile(s.blob(l.Digest), blob, 0o644); err != nil {
		s.t.Fatal(err)
	}
	return l
}

func (s *store) blob(d digest.Digest) string { return s.dir + "/" + d.Encoded() }

func (s *store) cache() layers.Cache {
	key, err := layers.OwnKey()
	if err != nil {
		s.t.Fatal(err)
	}
	return layers.Open(s.dir, key)
}

// fs returns the directory of a layer's files.
func (s *store) fs(l Layer) string {
	return filepath.Join(s.cache().Dir(), l.DiffID.Encoded(), "fs")
}

func (s *store) run(ctx context.Context, ls ...Layer) error {
	in := make(chan Layer, len(ls))
	for _, l := range ls {
		in <- l
	}
	close(in)
	s.events = nil
	return Run(ctx, Options{Store: s.dir, Limits: s.limits, Blobs: func(d digest.Digest) (*os.File, error) {
		return os.Open(s.blob(d))
	}}, in, func(e Event) { s.events = append(s.events, e) })
}

// unpack unpacks an archive of the entries, and returns the directory of its files.
func (s *store) unpack(entries ...entry) (string, error) {
	s.t.Helper()
	data := archive(s.t, entries...)
	l := s.add(zipped(s.t, data), data)
	return s.fs(l), s.run(s.t.Context(), l)
}

// must is like unpack, but fails the test on an error.
func (s *store) must(entries ...entry) string {
	s.t.Helper()
	dir, err := s.unpack(entries...)
	if err != nil {
		s.t.Fatal(err)
	}
	return dir
}

// notes returns the notes of the layer that was unpacked last.
func (s *store) notes() Notes {
	if len(s.events) == 0 {
		return Notes{}
	}
	return s.events[len(s.events)-1].Notes
}

// untouched checks that the file beside the store is unchanged, and that the cache has exactly n layers.
func (s *store) untouched(n int) {
	s.t.Helper()
	if got, err := os.ReadFile(s.beside + "/file"); err != nil || string(got) != "mine" {
		s.t.Errorf("the file beside the store is %q, %v", got, err)
	}
	for dir, want := range map[string]int{s.beside: 1, filepath.Dir(s.dir): 2, s.cache().Dir(): n} {
		list, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) || len(list) != want {
			s.t.Errorf("%q has %v, %v; want %d", dir, list, err, want)
		}
	}
}
