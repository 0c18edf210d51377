package pull

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"demesne/images/events"
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

// TestPullTotal checks that the size of each layer is reported before the first download, for one total.
func TestPullTotal(t *testing.T) {
	r := newRegistry(t)
	ref := r.push(t, "o/n:1", anImage(t, runtime.GOARCH, 1000, 9))
	o := r.options(t)
	var mu sync.Mutex
	var states []events.State
	o.Report = func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		states = append(states, e.State)
	}
	if _, err := Image(context.Background(), ref, o); err != nil {
		t.Fatal(err)
	}
	waiting := 0
	for _, s := range states {
		if s == events.Waiting {
			waiting++
		}
		if s == events.Pulled && waiting < 9 {
			t.Fatalf("%d layers of 9 were known when the first was complete: %q", waiting, states)
		}
	}
}
