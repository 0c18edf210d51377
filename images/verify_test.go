package images

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/images/oci"
)

func TestVerifyRepair(t *testing.T) {
	base := noise(1, 1<<20)
	for _, c := range []struct {
		name   string
		damage func(s *Store, img *Image) error
		why    string
		names  string
	}{
		{"nothing", func(*Store, *Image) error { return nil }, "", ""},
		{"a flipped bit", func(s *Store, img *Image) error {
			b := append([]byte{}, base...)
			b[500_000] ^= 1
			return os.WriteFile(s.blobPath(img.Layers[0].Digest), b, 0o644)
		}, "does not match its digest", "docker.io/library/a:1 docker.io/library/b:1"},
		{"too short", func(s *Store, img *Image) error { return os.Truncate(s.blobPath(img.Layers[1].Digest), 0) }, "0 bytes, not 1", "docker.io/library/a:1"},
		{"no layer", func(s *Store, img *Image) error { return os.Remove(s.blobPath(img.Layers[1].Digest)) }, "missing", "docker.io/library/a:1"},
		{"no manifest", func(s *Store, img *Image) error { return os.Remove(s.blobPath(img.Digest)) }, "missing", "docker.io/library/a:1"},
		{"a wrong manifest", func(s *Store, img *Image) error { return os.WriteFile(s.blobPath(img.Digest), []byte("{}"), 0o644) }, "2 bytes, not", "docker.io/library/a:1"},
		{"no index", func(s *Store, _ *Image) error { return os.WriteFile(s.path(indexFile), []byte("nonsense"), 0o644) }, "damaged", ""},
		{"a stray blob", func(s *Store, _ *Image) error {
			return os.WriteFile(s.path("blobs/sha256/"+someHex), []byte("x"), 0o644)
		}, "does not match its digest", ""},
		{"a stray name", func(s *Store, _ *Image) error { return os.WriteFile(s.path("blobs/sha256/README"), nil, 0o644) }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			img := addImage(t, s, "a:1", base, []byte("a"))
			addImage(t, s, "b:1", base, []byte("b"))
			if err := c.damage(s, img); err != nil {
				t.Fatal(err)
			}
			found, err := s.Verify(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.why == "" {
				if len(found) != 0 {
					t.Errorf("found %+v", found)
				}
				return
			}
			if len(found) != 1 || strings.Join(found[0].Names, " ") != c.names {
				t.Fatalf("found %+v", found)
			}
			contains(t, found[0].Why.Error(), c.why)
			if err := s.Repair(t.Context(), found); err != nil {
				t.Fatal(err)
			}
			mended(t, s, base)
		})
	}
}

// mended adds the images again, like a pull after a repair, and checks the store.
func mended(t *testing.T, s *Store, base []byte) {
	t.Helper()
	addImage(t, s, "a:1", base, []byte("a"))
	addImage(t, s, "b:1", base, []byte("b"))
	checkStore(t, s)
	list, err := s.List()
	if err != nil || len(list) != 2 {
		t.Errorf("%d images, %v", len(list), err)
	}
}

// TestRepairLooksAgain checks that Repair keeps files that were repaired meanwhile.
func TestRepairLooksAgain(t *testing.T) {
	s := newStore(t)
	img := addImage(t, s, "a:1", []byte("x"))
	old := []Damage{{Digest: img.Layers[0].Digest, Why: errors.New("then")}, {Why: errors.New("then")}, {Digest: oci.DigestOf(nil)}}
	if err := s.Repair(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	checkStore(t, s)
	if list, _ := s.List(); len(list) != 1 {
		t.Errorf("%d images are left", len(list))
	}
}

func TestVerifyCancelled(t *testing.T) {
	s := newStore(t)
	addImage(t, s, "a:1", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestVerifyFindsAll checks that Verify reports all damage.
func TestVerifyFindsAll(t *testing.T) {
	s := newStore(t)
	a, b := addImage(t, s, "a:1", []byte("1"), []byte("2")), addImage(t, s, "b:1", []byte("3"))
	gone := []oci.Digest{a.Layers[0].Digest, a.Layers[1].Digest, b.Digest}
	for _, d := range gone {
		if err := os.Remove(s.blobPath(d)); err != nil {
			t.Fatal(err)
		}
	}
	found, err := s.Verify(t.Context())
	if err != nil || len(found) != 3 {
		t.Fatalf("found %+v, %v", found, err)
	}
	for _, d := range gone {
		if !slices.ContainsFunc(found, func(f Damage) bool { return f.Digest == d }) {
			t.Errorf("%s is not found", d)
		}
	}
}
