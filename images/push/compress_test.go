package push

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
)

// compressed returns an image whose layers were compressed before a push, and the files of their compressed forms.
func (s *shop) compressed(name string, sizes ...int) (img *images.Image, blobs []string) {
	s.Helper()
	img = s.image(name, sizes...)
	if err := Compress(context.Background(), s.store, img); err != nil {
		s.Fatal(err)
	}
	for _, l := range img.Layers {
		one, _, here := images.Copies{Store: s.store}.Form(l.Digest, "gzip:5")
		if !here {
			s.Fatalf("layer %s has no compressed form", l.Digest)
		}
		blobs = append(blobs, filepath.Join(s.store.Dir(), "blobs/sha256", one.Digest.Encoded()))
	}
	return img, blobs
}

// TestCompress checks that an image has the same digest in a registry whether its layers were compressed before or by the
// push, that the push reads the compressed form, and that it does the work itself where that is damaged or gone.
func TestCompress(t *testing.T) {
	s := newShop(t)
	img, _ := s.compressed("local/app", 5<<20, 3000)
	if err := os.WriteFile(filepath.Join(s.store.Dir(), "blobs/sha256", img.Layers[0].Digest.Encoded()), make([]byte, img.Layers[0].Size), 0o644); err != nil {
		t.Fatal(err) // a push that compresses the layer would find the damage
	}
	s.pushed(img, newRegistry(t).host+"/o/n:1")
	if n := s.states()[events.Pushed]; n != 2 {
		t.Errorf("%d layers were pushed", n)
	}
	for i, change := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, make([]byte, fileSize(t, path)), 0o644) },
		func(path string) error { return os.Truncate(path, 7) },
		os.Remove,
	} {
		r, s := newRegistry(t), newShop(t)
		img, blobs := s.compressed("local/app", 2<<20)
		if err := change(blobs[0]); err != nil {
			t.Fatal(err)
		}
		d := s.pushed(img, r.host+"/o/n:1")
		if got, _ := s.pulled(r.host + "/o/n:1"); got.Digest != d || got.Layers[0].DiffID != img.Layers[0].DiffID {
			t.Errorf("change %d: pulled %+v", i, got)
		}
	}
}

// TestCompressSame checks that a push has the same digest as one that compresses the layers itself, also after its upload was cut.
func TestCompressSame(t *testing.T) {
	r, s := newRegistry(t), newShop(t)
	img := s.image("local/app", 5<<20)
	want := s.pushed(img, newRegistry(t).host+"/o/n:1")
	forgotten := filepath.Join(s.store.Dir(), "pushed", img.Layers[0].Digest.Encoded())
	if err := errors.Join(os.Remove(forgotten), Compress(context.Background(), s.store, img)); err != nil {
		t.Fatal(err)
	}
	cut := true
	r.behave(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		if req.Method == http.MethodPatch && cut {
			cut = false
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, req)
	})
	if got := s.pushed(img, r.host+"/o/n:1"); got != want || cut {
		t.Errorf("pushed as %s, not %s", got, want)
	}
	if s.states()["retry"] == 0 {
		t.Error("the upload was not cut")
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// TestCompressGC checks which compressed forms are kept: the forms of images, while pushes use them.
func TestCompressGC(t *testing.T) {
	s := newShop(t)
	img, blobs := s.compressed("local/app", 100_000)
	s.store.Close()
	gc := func(o images.GCOptions) bool {
		t.Helper()
		if _, err := s.store.GC(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(blobs[0])
		return err == nil
	}
	if !gc(images.GCOptions{}) {
		t.Error("gc removed a form that was just made")
	}
	old := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(blobs[0], old, old); err != nil {
		t.Fatal(err)
	}
	s.pushed(img, newRegistry(t).host+"/o/n:1")
	if !gc(images.GCOptions{}) {
		t.Error("gc removed a form that a push used")
	}
	os.Chtimes(blobs[0], old, old)
	if gc(images.GCOptions{}) {
		t.Error("gc kept a form that no push used for a week")
	}
	two, blobs := s.compressed("local/two", 5000)
	s.store.Close()
	if err := s.store.RemoveAll(context.Background(), []oci.Digest{two.Digest}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(blobs[0]); err == nil {
		t.Error("the form of a removed image is kept")
	}
}
