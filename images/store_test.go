package images

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"demesne/images/oci"
)

func TestOpen(t *testing.T) {
	old := syscall.Umask(0o077) // applies to the process; restored below
	defer syscall.Umask(old)
	dir := filepath.Join(t.TempDir(), "a", "images")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := Open(dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for name, want := range map[string]fs.FileMode{
		"blobs/sha256": 0o755, "used": 0o755, "trees": 0o755, "partial": 0o700, "locks": 0o700, "oci-layout": 0o644,
	} {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 6 {
		t.Errorf("the store has %v, %v", list, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	shared := filepath.Join(t.TempDir(), "shared")
	if err := errors.Join(os.Mkdir(shared, 0o777), os.Chmod(shared, 0o777)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dir, why string }{{shared, "every user"}, {file, "not a directory"}, {filepath.Join(file, "x"), "not a directory"}} {
		_, err := Open(c.dir)
		if err == nil {
			t.Errorf("%s is opened", c.dir)
			continue
		}
		contains(t, err.Error(), "open store", c.why)
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("DEMESNE_IMAGE_STORE", "/x/../y")
	if got, err := DefaultDir(); got != "/y" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	t.Setenv("DEMESNE_IMAGE_STORE", "y")
	if got, err := DefaultDir(); err == nil {
		t.Errorf("a relative store is %q", got)
	}
	t.Setenv("DEMESNE_IMAGE_STORE", "")
	t.Setenv("HOME", "/home/x")
	if os.Geteuid() != 0 {
		if got, err := DefaultDir(); got != "/home/x/.demesne/images" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestAddLookup(t *testing.T) {
	s := newStore(t)
	base, top := noise(1, 5000), noise(2, 700)
	img := addImage(t, s, "ghcr.io/o/n:1", base, top)
	for _, name := range []string{"ghcr.io/o/n:1", "x/y@" + string(img.Digest), string(img.Digest), img.Digest.Encoded()[:12]} {
		got, err := s.Lookup(mustParse(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Digest != img.Digest || len(got.Layers) != 2 || got.Config.Cmd[0] != "sh" || got.Config.Architecture != "amd64" {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Layers[0].Digest != oci.DigestOf(base) || got.Layers[1].DiffID != oci.DigestOf(top) || got.Size < 5700 || got.Created.Year() != 2026 {
			t.Errorf("%s: %+v", name, got)
		}
		if time.Since(got.Used) > time.Minute || time.Since(got.Pulled) > time.Minute {
			t.Errorf("%s: used %v, pulled %v", name, got.Used, got.Pulled)
		}
	}
	for _, name := range []string{"ghcr.io/o/n", "o/n:1", "sha256:" + someHex, someHex[:12], "oci:/x"} {
		if _, err := s.Lookup(mustParse(t, name)); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Lookup(mustParse(t, "host")); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("host: %v", err)
	}
}

// TestNamesMove checks that an image may have many names, and a name points to one image.
func TestNamesMove(t *testing.T) {
	s := newStore(t)
	one := addImage(t, s, "a/b:1", []byte("one"))
	m := oci.Descriptor{MediaType: oci.TypeOCIManifest, Digest: one.Digest, Size: sizeOf(t, s, one.Digest)}
	index := oci.DigestOf([]byte("index"))
	for range 2 {
		if _, err := s.Add(t.Context(), Record{Ref: mustParse(t, "a/b:latest"), Manifest: m, Index: index}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Lookup(mustParse(t, "x/y@"+string(index)))
	if err != nil || strings.Join(got.Names, " ") != "docker.io/a/b:1 docker.io/a/b:latest" || got.Index != index || got.Pulled.IsZero() {
		t.Fatalf("got %+v, %v", got, err)
	}
	two := addImage(t, s, "a/b:latest", []byte("two"))
	for name, want := range map[string]oci.Digest{"a/b": two.Digest, "a/b:1": one.Digest} {
		if got, err := s.Lookup(mustParse(t, name)); err != nil || got.Digest != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	addImage(t, s, "a/b:1", []byte("two"), []byte("three"))
	got, err = s.Lookup(mustParse(t, string(one.Digest)))
	if err != nil || len(got.Names) != 0 {
		t.Errorf("an image whose names moved on is %+v, %v", got, err)
	}
}

func sizeOf(t testing.TB, s *Store, d oci.Digest) int64 {
	t.Helper()
	st, err := os.Stat(s.blobPath(d))
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// TestAmbiguousPrefix checks that an abbreviated digest must match one image.
func TestAmbiguousPrefix(t *testing.T) {
	a, b := oci.Digest("sha256:"+someHex), oci.Digest("sha256:"+someHex[:60]+"ffff")
	entries := []entry{{Descriptor: oci.Descriptor{Digest: a}}, {Descriptor: oci.Descriptor{Digest: b}}}
	if _, err := find(entries, mustParse(t, someHex[:12])); err == nil {
		t.Error("two images are one")
	}
	if i, err := find(entries, mustParse(t, string(b))); i != 1 || err != nil {
		t.Errorf("got %d, %v", i, err)
	}
}

func TestAddRefuses(t *testing.T) {
	s := newStore(t)
	good, err := makeImage(t.Context(), s, oci.Config{}, []byte("a layer"))
	if err != nil {
		t.Fatal(err)
	}
	bad := func(text string) oci.Descriptor {
		d, err := put(t.Context(), s, []byte(text), oci.TypeOCIManifest)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		name     string
		manifest oci.Descriptor
		why      string
	}{
		{"host", good, "not a valid name"},
		{"dir:/", good, "not a valid name"},
		{someHex, good, "not a valid name"},
		{"a:1", oci.Descriptor{Digest: oci.DigestOf([]byte("elsewhere")), Size: 9}, "missing"},
		{"a:1", oci.Descriptor{Digest: good.Digest, Size: good.Size - 1}, "more than"},
		{"a:1", oci.Descriptor{Digest: good.Digest, Size: good.Size + 1}, "does not match its digest"},
		{"a:1", bad(`{"schemaVersion":1}`), "schema version"},
		{"a:1", bad(`{"schemaVersion":2,"config":{"digest":"sha256:` + someHex + `","size":2}}`), "missing"},
	} {
		_, err := s.Add(t.Context(), Record{Ref: mustParse(t, c.name), Manifest: c.manifest})
		if err == nil {
			t.Errorf("%s: added, not refused: %s", c.name, c.why)
			continue
		}
		contains(t, err.Error(), "add image", c.why)
	}
	if err := os.Remove(s.blobPath(oci.DigestOf([]byte("a layer")))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add(t.Context(), Record{Ref: mustParse(t, "a:1"), Manifest: good}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an image without its layer: %v", err)
	}
	if list, err := s.List(); len(list) != 0 || err != nil {
		t.Errorf("the list is %v, %v", list, err)
	}
}

// TestLookupDamaged damages each of the three files that Lookup reads.
func TestLookupDamaged(t *testing.T) {
	for name, damage := range map[string]func(s *Store, img *Image) error{
		"no manifest":    func(s *Store, img *Image) error { return os.Remove(s.blobPath(img.Digest)) },
		"other manifest": func(s *Store, img *Image) error { return os.WriteFile(s.blobPath(img.Digest), []byte("{}"), 0o644) },
		"long manifest":  func(s *Store, img *Image) error { return os.Truncate(s.blobPath(img.Digest), 1<<33) },
		"no index":       func(s *Store, _ *Image) error { return os.WriteFile(s.path(indexFile), []byte("{"), 0o644) },
		"strange index": func(s *Store, _ *Image) error {
			return os.WriteFile(s.path(indexFile), []byte(`{"manifests":[{"digest":"sha256:x","size":1}]}`), 0o644)
		},
		"strange names": func(s *Store, img *Image) error {
			raw, err := os.ReadFile(s.path(indexFile))
			raw = bytes.Replace(raw, []byte(`"annotations":{`), []byte(`"annotations":{"demesne.names":"[",`), 1)
			return errors.Join(err, os.WriteFile(s.path(indexFile), raw, 0o644))
		},
	} {
		s := newStore(t)
		img := addImage(t, s, "a:1", []byte("x"))
		if err := damage(s, img); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Lookup(mustParse(t, "a:1")); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIndexKeepsForeign checks that annotations of other tools are kept.
func TestIndexKeepsForeign(t *testing.T) {
	s := newStore(t)
	addImage(t, s, "a:1", []byte("x"))
	raw, err := os.ReadFile(s.path(indexFile))
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.Replace(raw, []byte(`"annotations":{`), []byte(`"platform":{"architecture":"amd64","os":"linux"},"annotations":{"org.x":"y",`), 1)
	if err := os.WriteFile(s.path(indexFile), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	addImage(t, s, "b:1", []byte("y"))
	raw, _ = os.ReadFile(s.path(indexFile))
	contains(t, string(raw), `"org.x":"y"`, `"architecture":"amd64"`, `"schemaVersion":2`)
}

func TestHold(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(s.usedPath(img.Digest), long, long); err != nil {
		t.Fatal(err)
	}
	held, err := s.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if list, _ := s.List(); !list[0].InUse || time.Since(list[0].Used) > time.Minute {
		t.Errorf("in use %v, used %v", list[0].InUse, list[0].Used)
	}
	held.Close()
	if list, _ := s.List(); list[0].InUse {
		t.Error("still in use")
	}
	if _, err := s.Hold(t.Context(), oci.DigestOf(nil)); !errors.Is(err, ErrNotFound) {
		t.Errorf("holding nothing: %v", err)
	}
}

// TestForeignLayout checks that an image layout of another tool can be opened as a store.
func TestForeignLayout(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	s.Close()
	for _, name := range []string{"used", "trees", "partial", "locks"} {
		if err := os.RemoveAll(s.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(t.Context(), mustParse(t, "a:1"), false); !errors.Is(err, ErrInUse) {
		t.Errorf("held: %v", err)
	}
	held.Close()
	addImage(t, s, "b:1", []byte("y"))
	checkStore(t, s)
}

func TestList(t *testing.T) {
	s := newStore(t)
	base := noise(1, 10000)
	addImage(t, s, "a:1", base, []byte("a"))
	addImage(t, s, "b:1", base, base, []byte("b"))
	c := addImage(t, s, "c:1", []byte("c"))
	broken := addImage(t, s, "d:1", []byte("d"))
	if err := os.Remove(s.blobPath(broken.Digest)); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if err != nil || len(list) != 4 {
		t.Fatalf("got %d images, %v", len(list), err)
	}
	for i, want := range []int64{10000, 10000, 0, 0} {
		if list[i].Shared != want || list[i].InUse {
			t.Errorf("image %d: %+v", i, list[i])
		}
	}
	if !errors.Is(list[3].Err, ErrCorrupt) || list[3].Names[0] != "docker.io/library/d:1" || list[2].Digest != c.Digest {
		t.Errorf("got %+v", list[3])
	}
	ids, err := s.DiffIDs()
	if err != nil || len(ids) != 4 || ids[0] != oci.DigestOf(base) {
		t.Errorf("diff ids %v, %v", ids, err)
	}
	// An image that cannot be read for another reason keeps its layers: nothing is swept.
	path := s.blobPath(c.Digest)
	if err := errors.Join(os.Remove(path), os.Symlink(path, path)); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.DiffIDs(); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("diff ids %v, %v", ids, err)
	}
}

// TestReadOnly checks that a process without write access can use the images of a store.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root writes where it must not; what is looked at is that nothing is opened for writing")
	}
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	for _, d := range []string{"", "used", "blobs/sha256", "locks", "partial"} {
		if err := os.Chmod(s.path(d), 0o555); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(s.path(d), 0o755)
	}
	again, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Lookup(mustParse(t, "a:1")); err != nil {
		t.Error(err)
	}
	held, err := again.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	held.Close()
}

func TestLockWaits(t *testing.T) {
	s := newStore(t)
	lock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := s.lock(ctx); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { f, err := s.lock(t.Context()); done <- errors.Join(err, f.Close()) }()
	lock.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
