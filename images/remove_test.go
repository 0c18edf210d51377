package images

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/images/oci"
)

func TestRemove(t *testing.T) {
	s := newStore(t)
	base := noise(1, 10_000)
	one := addImage(t, s, "a:1", base, []byte("a"))
	two := addImage(t, s, "b:1", base, []byte("b"))
	m := oci.Descriptor{MediaType: oci.TypeOCIManifest, Digest: one.Digest, Size: sizeOf(t, s, one.Digest)}
	if _, err := s.Add(t.Context(), Record{Ref: mustParse(t, "a:2"), Manifest: m}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	freed, err := s.Remove(t.Context(), mustParse(t, "a:1"), false)
	if err != nil || len(freed.Images) != 0 || freed.Blobs != 0 || !slices.Equal(freed.Names, []string{"docker.io/library/a:1"}) {
		t.Fatalf("one of two names: %+v, %v", freed, err)
	}
	freed, err = s.Remove(t.Context(), mustParse(t, "a:2"), false)
	if err != nil || !slices.Equal(freed.Images, []oci.Digest{one.Digest}) || freed.Blobs != 3 || freed.Bytes <= 0 || freed.Bytes > 9000 {
		t.Fatalf("the last name: %+v, %v", freed, err)
	}
	checkStore(t, s)
	if _, err := s.Lookup(mustParse(t, "a:2")); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed, and: %v", err)
	}
	if used := blobFiles(t, s, "used"); !slices.Equal(used, []string{two.Digest.Encoded()}) {
		t.Errorf("used files: %v", used)
	}
	if _, err := s.Remove(t.Context(), mustParse(t, two.Digest.Encoded()[:12]), false); err != nil {
		t.Error(err)
	}
	if left := blobFiles(t, s, "blobs/sha256"); len(left) != 0 {
		t.Errorf("blobs left: %v", left)
	}
}

func TestRemoveRefuses(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	s.Close()
	var u *UnknownError
	if _, err := s.Remove(t.Context(), mustParse(t, "nothing"), false); !errors.As(err, &u) {
		t.Errorf("an unknown word: %v", err)
	}
	for _, name := range []string{"b:1", "other/repository@" + string(img.Digest), someHex} {
		if _, err := s.Remove(t.Context(), mustParse(t, name), true); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	held, err := s.Hold(t.Context(), img.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := s.Remove(t.Context(), mustParse(t, "a:1"), false); !errors.Is(err, ErrInUse) {
		t.Errorf("held: %v", err)
	}
	checkStore(t, s)
	if _, err := s.Lookup(mustParse(t, "a:1")); err != nil {
		t.Error(err)
	}
	if freed, err := s.Remove(t.Context(), mustParse(t, "a:1"), true); err != nil || len(freed.Images) != 1 {
		t.Errorf("forced: %+v, %v", freed, err)
	}
}

// TestRemoveFails checks that a removal which fails before the index is written, as on a full disk, removes no blob.
func TestRemoveFails(t *testing.T) {
	s := newStore(t)
	addImage(t, s, "a:1", []byte("a"))
	other := addImage(t, s, "b:1", []byte("b"))
	s.Close()
	if err := os.Remove(s.usedPath(other.Digest)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nosuch/file", s.usedPath(other.Digest)); err != nil {
		t.Fatal(err)
	}
	before := blobFiles(t, s, "blobs/sha256")
	if freed, err := s.Remove(t.Context(), mustParse(t, "b:1"), false); err == nil {
		t.Errorf("removed: %+v", freed)
	}
	if after := blobFiles(t, s, "blobs/sha256"); !slices.Equal(before, after) {
		t.Errorf("%d of %d blobs are left", len(after), len(before))
	}
}

// aged sets an image's time of last use back.
func aged(t *testing.T, s *Store, img *Image, age time.Duration) {
	t.Helper()
	then := time.Now().Add(-age)
	if err := os.Chtimes(s.usedPath(img.Digest), then, then); err != nil {
		t.Fatal(err)
	}
}

func TestGC(t *testing.T) {
	for _, c := range []struct {
		name    string
		options GCOptions
		gone    string // removed images, of "new", "old", "held" and "moved"
	}{
		{"nothing said", GCOptions{}, "moved"},
		{"by age", GCOptions{OlderThan: time.Hour}, "moved old"},
		{"by a longer age", GCOptions{OlderThan: 3 * time.Hour}, "moved"},
		{"all", GCOptions{All: true}, "moved new old"},
	} {
		s := newStore(t)
		moved := addImage(t, s, "new:1", []byte("moved"))
		imgs := map[string]*Image{
			"moved": moved,
			"new":   addImage(t, s, "new:1", []byte("new")),
			"old":   addImage(t, s, "old:1", []byte("old")),
			"held":  addImage(t, s, "held:1", []byte("held")),
		}
		held, err := s.Hold(t.Context(), imgs["held"].Digest)
		if err != nil {
			t.Fatal(err)
		}
		aged(t, s, imgs["old"], 2*time.Hour)
		aged(t, s, imgs["held"], 2*time.Hour)
		s.Close()
		freed, err := s.GC(t.Context(), c.options)
		if err != nil {
			t.Fatal(err)
		}
		held.Close()
		for name, img := range imgs {
			_, err := s.Lookup(mustParse(t, string(img.Digest)))
			want := slices.Contains(strings.Fields(c.gone), name)
			if want != errors.Is(err, ErrNotFound) || want != slices.Contains(freed.Images, img.Digest) {
				t.Errorf("%s: %s: %v", c.name, name, err)
			}
		}
		if n := len(strings.Fields(c.gone)); freed.Blobs != 3*n || len(blobFiles(t, s, "used")) != 4-n {
			t.Errorf("%s: %+v", c.name, freed)
		}
		checkStore(t, s)
	}
}

// TestGCPinned checks that a pinned blob is kept until no process pins it.
func TestGCPinned(t *testing.T) {
	s := newStore(t)
	other, err := Open(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	m, err := makeImage(t.Context(), s, oci.Config{}, []byte("a layer"))
	if err != nil {
		t.Fatal(err)
	}
	// The other store finds the layer and pins it.
	if _, err := other.Begin(t.Context(), oci.DigestOf([]byte("a layer")), 7); !errors.Is(err, ErrPresent) {
		t.Fatal(err)
	}
	if freed, err := s.GC(t.Context(), GCOptions{All: true}); err != nil || freed.Blobs != 0 {
		t.Errorf("pinned: %+v, %v", freed, err)
	}
	s.Close()
	if freed, err := s.GC(t.Context(), GCOptions{All: true}); err != nil || freed.Blobs != 2 {
		t.Errorf("pinned by another one: %+v, %v", freed, err)
	}
	if _, err := os.Stat(s.blobPath(m.Digest)); err == nil {
		t.Error("the manifest is still there")
	}
	other.Close()
	if freed, err := s.GC(t.Context(), GCOptions{}); err != nil || freed.Blobs != 1 || freed.Bytes != 7 {
		t.Errorf("not pinned: %+v, %v", freed, err)
	}
}

func TestGCLeftovers(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	s.Close()
	hours := func(n int) time.Time { return time.Now().Add(-time.Duration(n) * time.Hour) }
	write := func(name string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(s.path(name), []byte("abc"), 0o600), os.Chtimes(s.path(name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("partial/"+someHex, hours(30))
	write("partial/put-old", hours(30))
	write("partial/put-new", hours(0))
	write("partial/"+strings.Repeat("1", 64), hours(2))
	write(".index.json-1", hours(2))
	write(".index.json-2", hours(0))
	write("used/"+someHex, hours(0))
	w, err := s.Begin(t.Context(), oci.DigestOf(nil), 10)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := os.Chtimes(w.f.Name(), hours(30), hours(30)); err != nil {
		t.Fatal(err)
	}
	freed, err := s.GC(t.Context(), GCOptions{})
	if err != nil || freed.Bytes != 6 || len(freed.Images) != 0 {
		t.Errorf("%+v, %v", freed, err)
	}
	want := []string{strings.Repeat("1", 64), oci.DigestOf(nil).Encoded(), "put-new"}
	if got := blobFiles(t, s, "partial"); !slices.Equal(got, want) {
		t.Errorf("partials left: %v", got)
	}
	if got := blobFiles(t, s, "used"); !slices.Equal(got, []string{img.Digest.Encoded()}) {
		t.Errorf("used left: %v", got)
	}
	if got := strings.Join(blobFiles(t, s, ""), " "); strings.Contains(got, "json-1") || !strings.Contains(got, "json-2") {
		t.Errorf("left: %v", got)
	}
	if _, err := s.GC(t.Context(), GCOptions{Partials: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if got := blobFiles(t, s, "partial"); len(got) != 2 {
		t.Errorf("partials left: %v", got)
	}
}

// TestGCDamaged checks that GC removes nothing if the index is damaged.
func TestGCDamaged(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	s.Close()
	if err := os.WriteFile(s.path(indexFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GC(t.Context(), GCOptions{All: true}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(s.blobPath(img.Digest)); err != nil {
		t.Error(err)
	}
}
