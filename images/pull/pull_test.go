package pull

import (
	"context"
	"runtime"
	"testing"

	"demesne/images/imageref"
)

// TestPull checks that an image keeps the registry's digest. A second pull by tag sends one HEAD
// request, and a pull by digest sends none.
func TestPull(t *testing.T) {
	r := newRegistry(t)
	img := anImage(t, runtime.GOARCH, 1000, 3)
	ref := r.push(t, "o/n:1", img)
	o := r.options(t)
	r.behave(nil)
	d, err := Image(context.Background(), ref, o)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, o.Store, ref, img)
	if n, _ := r.count("GET", "/manifests/"); n != 1 {
		t.Errorf("%d manifests were asked for, not one", n)
	}

	r.behave(nil)
	if again, err := Image(context.Background(), ref, o); err != nil || again != d {
		t.Fatalf("again: %s, %v", again, err)
	}
	if n, _ := r.count("HEAD", "/manifests/"); n != 1 {
		t.Errorf("%d HEAD, not one", n)
	}
	if n, _ := r.count("GET", "/o/n/"); n != 0 {
		t.Errorf("%d GET for an image that is there", n)
	}

	r.behave(nil)
	pinned := parseRef(t, r.host+"/o/n@"+string(d))
	if again, err := Image(context.Background(), pinned, o); err != nil || again != d {
		t.Fatalf("by digest: %s, %v", again, err)
	}
	if n, _ := r.count("", ""); n != 0 || len(r.served) != 0 {
		t.Errorf("%d requests for a digest that is there", len(r.served))
	}
}

var _ = imageref.Parse
