package pull

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"go.podman.io/image/v5/docker/reference"

	"demesne/images"
	"demesne/images/oci"
)

// everyLayer says that each layer is unpacked.
func everyLayer(oci.Digest) bool { return true }

func dropAll(t *testing.T, dir string, unpacked func(oci.Digest) bool) *images.Freed {
	t.Helper()
	s, err := images.Open(dir) // a store without pins
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	freed, err := s.GC(context.Background(), images.GCOptions{Unpacked: unpacked})
	if err != nil {
		t.Fatal(err)
	}
	return freed
}

// TestFetch checks that dropped blobs are not damage, that a pull leaves them out, and that Fetch gets exactly them
// again, also after the tag moved in
// the registry.
func TestFetch(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 1000, 3)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	ctx := context.Background()
	d, err := Image(ctx, ref, o)
	if err != nil {
		t.Fatal(err)
	}
	have, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	packed := have.Layers[1]
	freed := dropAll(t, o.Store.Dir(), func(id oci.Digest) bool { return id != packed.DiffID })
	if freed.Blobs != 2 || freed.Bytes < 2000 {
		t.Errorf("freed %+v", freed)
	}
	if freed := dropAll(t, o.Store.Dir(), everyLayer); freed.Blobs != 1 {
		t.Errorf("the second time: freed %+v", freed)
	}
	if err := o.Store.Whole(have); err != nil {
		t.Errorf("Whole: %v", err)
	}
	if damage, err := o.Store.Verify(ctx); err != nil || len(damage) > 0 {
		t.Errorf("Verify: %v, %v", damage, err)
	}
	if list, err := o.Store.List(); err != nil || list[0].Dropped < 3000 || list[0].Dropped >= list[0].Size {
		t.Errorf("List: %+v, %v", list, err)
	}
	r.behave(nil)
	if again, err := Image(ctx, ref, o); err != nil || again != d {
		t.Fatalf("pull: %s, %v", again, err)
	}
	if n, _ := r.count("GET", "/blobs/"); n != 0 {
		t.Errorf("the pull fetched %d blobs", n)
	}
	r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 500, 1))
	if err := Fetch(ctx, have, o); err != nil {
		t.Fatal(err)
	}
	if n, _ := r.count("GET", "/blobs/"); n != 3 {
		t.Errorf("%d blobs were fetched", n)
	}
	holds(t, o.Store, parseRef(t, string(d)), img)
	r.behave(nil)
	if err := Fetch(ctx, have, o); err != nil || len(r.served) > 0 {
		t.Errorf("fetch of what is here: %v, %+v", err, r.served)
	}
	if list, err := os.ReadDir(filepath.Join(o.Store.Dir(), "dropped")); err != nil || len(list) > 0 {
		t.Errorf("records are left: %v, %v", list, err)
	}
}

// TestFetchPinned checks that a blob that Fetch found or got is not dropped before the store is closed.
func TestFetchPinned(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 1000, 2))
	o := r.options(t)
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	have, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := Fetch(context.Background(), have, o); err != nil {
		t.Fatal(err)
	}
	if freed := dropAll(t, o.Store.Dir(), everyLayer); freed.Blobs != 0 {
		t.Errorf("freed %+v", freed)
	}
	o.Store.Close()
	if freed := dropAll(t, o.Store.Dir(), everyLayer); freed.Blobs != 2 {
		t.Errorf("after Close: freed %+v", freed)
	}
}

// TestFetchFails checks the errors: of a registry that does not answer, and of a blob that is missing without a record.
func TestFetchFails(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 1000, 2))
	o := r.options(t)
	ctx := context.Background()
	if _, err := Image(ctx, ref, o); err != nil {
		t.Fatal(err)
	}
	have, err := o.Store.Lookup(ref)
	if err != nil {
		t.Fatal(err)
	}
	dropAll(t, o.Store.Dir(), everyLayer)
	r.Close()
	if err := Fetch(ctx, have, o); Classify(err) != "unreachable" {
		t.Errorf("without the registry: %q, %v", Classify(err), err)
	}
	if err := o.Store.Whole(have); err != nil {
		t.Errorf("after that: %v", err)
	}
	if err := os.Remove(filepath.Join(o.Store.Dir(), "dropped", have.Layers[0].Digest.Encoded())); err != nil {
		t.Fatal(err)
	}
	if err := Fetch(ctx, have, o); !errors.Is(err, images.ErrCorrupt) {
		t.Errorf("without the record: %v", err)
	}
	if damage, err := o.Store.Verify(ctx); err != nil || len(damage) != 1 {
		t.Errorf("Verify: %v, %v", damage, err)
	}
}

// TestDropKeeps checks that an image that was made here keeps its blobs, those that a pulled image has too included.
func TestDropKeeps(t *testing.T) {
	r := newRegistry(t)
	below := anImage(t, runtime.GOARCH, 1000, 2)
	layer, err := random.Layer(800, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	if err != nil {
		t.Fatal(err)
	}
	above, err := mutate.AppendLayers(below, layer)
	if err != nil {
		t.Fatal(err)
	}
	base, ref := r.push(t, "o/n:1", below), r.push(t, "o/n:2", above)
	o := r.options(t)
	ctx := context.Background()
	if _, err := Image(ctx, ref, o); err != nil {
		t.Fatal(err)
	}
	named, err := reference.ParseNormalizedNamed(base.Full)
	if err != nil {
		t.Fatal(err)
	}
	src, err := newPuller(o).dial(ctx, []reference.Named{named})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := Copy(ctx, src, parseRef(t, "mine"), o); err != nil {
		t.Fatal(err)
	}
	o.Store.Close()
	if freed := dropAll(t, o.Store.Dir(), everyLayer); freed.Blobs != 1 {
		t.Errorf("freed %+v, want one layer", freed)
	}
	if _, err := o.Store.Remove(ctx, ref, false); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(filepath.Join(o.Store.Dir(), "dropped")); err != nil || len(list) > 0 {
		t.Errorf("records of a removed image are left: %v, %v", list, err)
	}
	holds(t, o.Store, parseRef(t, "mine"), below)
}
