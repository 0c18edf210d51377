package sandbox

import (
	"reflect"
	"strings"
	"testing"

	"demesne/runner"
)

func TestShapeOf(t *testing.T) {
	plain := runner.Spec{Image: "host", Interior: runner.Interior{Hostname: "h"}, Out: "/o", Limits: runner.Limits{Memory: 1 << 30}}
	want, rest, ok := ShapeOf(plain, nil)
	if !ok || rest.Out != "" || rest.Limits != plain.Limits || rest.Hostname != "h" {
		t.Fatalf("%q, %+v, %v", want, rest, ok)
	}
	for _, c := range []struct {
		name   string
		change func(*runner.Spec)
		fits   bool // a sandbox can be prepared for it
		same   bool // of the same shape as the plain Spec
	}{
		{"nothing", func(*runner.Spec) {}, true, true},
		{"name", func(s *runner.Spec) { s.Name = "n" }, true, true},
		{"out", func(s *runner.Spec) { s.Out = "/p" }, true, true},
		{"workspace", func(s *runner.Spec) { s.Workspace = "/w" }, true, true},
		{"require", func(s *runner.Spec) { s.Require = runner.LevelFull }, true, true},
		{"exposed", func(s *runner.Spec) { s.Exposed = true }, true, true},
		{"memory", func(s *runner.Spec) { s.Limits.Memory = 1 << 20 }, true, false},
		{"user", func(s *runner.Spec) { s.User = &runner.User{UID: 1} }, true, false},
		{"hostname", func(s *runner.Spec) { s.Hostname = "i" }, true, false},
		{"inputs", func(s *runner.Spec) { s.Inputs = []runner.Input{{Path: "/i", Name: "i"}} }, false, false},
		{"mounts", func(s *runner.Spec) { s.Mounts = []runner.Mount{{Source: "/m", Target: "/m"}} }, false, false},
		{"listener", func(s *runner.Spec) { s.Egress = &runner.Egress{Listen: []uint16{8089}} }, false, false},
		{"nesting", func(s *runner.Spec) { s.Nesting = true }, false, false},
		{"network", func(s *runner.Spec) { s.Egress = &runner.Egress{Allow: []string{"a.test"}} }, true, false},
		{"secrets", func(s *runner.Spec) { s.Egress = &runner.Egress{Secrets: []runner.Secret{{}}} }, false, false},
		{"the machine's certificates", func(s *runner.Spec) { s.Egress = &runner.Egress{Trust: runner.Trust{Host: true}} }, true, false},
		{"the caller's certificates", func(s *runner.Spec) { s.Egress = &runner.Egress{Trust: runner.Trust{PEM: []byte("c")}} }, false, false},
		{"port", func(s *runner.Spec) { s.Publish = []runner.Port{{}} }, false, false},
		{"directory", func(s *runner.Spec) { s.Rootfs = &runner.Rootfs{Dir: "/d"} }, false, false},
		{"image", func(s *runner.Spec) { s.Rootfs = &runner.Rootfs{Layers: []string{"a"}} }, true, false},
		{"persistent", func(s *runner.Spec) { s.Lifetime = runner.Persistent }, true, false},
		{"attached", func(s *runner.Spec) { s.Lifetime = runner.Attached }, false, false},
		{"times", func(s *runner.Spec) { s.TTL, s.MaxAge, s.PauseIdle, s.Share = 1, 1, 1, "f" }, true, true},
		{"build", func(s *runner.Spec) { s.Rootfs = &runner.Rootfs{Layers: []string{"a"}, Aside: true} }, false, false},
		{"key", func(s *runner.Spec) { s.Lifetime, s.Key = runner.Persistent, "k" }, false, false},
	} {
		spec := plain
		c.change(&spec)
		if got, _, ok := ShapeOf(spec, spec.Egress); ok != c.fits || (got == want) != c.same {
			t.Errorf("%s: %q, %v", c.name, got, ok)
		}
	}
}

// TestShapeOfNetwork checks that the rules are not part of a shape and not in a prepared sandbox.
func TestShapeOfNetwork(t *testing.T) {
	one, rest, ok := ShapeOf(runner.Spec{}, &runner.Egress{Mode: "open", Allow: []string{"a.test"}, Log: "/l", Upstream: map[string]string{"A": "b"}})
	if !ok || !reflect.DeepEqual(rest.Egress, &runner.Egress{}) {
		t.Errorf("%+v, %v", rest.Egress, ok)
	}
	if other, _, _ := ShapeOf(runner.Spec{}, &runner.Egress{Learn: true}); other != one {
		t.Errorf("%q is not %q", other, one)
	}
	if other, _, _ := ShapeOf(runner.Spec{}, &runner.Egress{GoProxy: true}); other == one {
		t.Error("a server inside is no shape of its own")
	}
	routes := func(port uint16) *runner.Egress {
		return &runner.Egress{Routes: []runner.Route{{Port: port, To: "https://a.test", Token: "hidden", Header: map[string]string{"A": "hidden"}, Record: "/r"}}}
	}
	route, rest, ok := ShapeOf(runner.Spec{}, routes(8088))
	if route == one || !ok || strings.Contains(route, "hidden") || !reflect.DeepEqual(rest.Egress, &runner.Egress{Routes: []runner.Route{{Port: 8088}}}) {
		t.Errorf("%q, %+v", route, rest.Egress)
	}
	if other, _, _ := ShapeOf(runner.Spec{}, routes(8086)); other == route {
		t.Error("a route on another port is of the same shape")
	}
}

// TestShapeOfImage checks that Exposed is part of the shape for an image. It decides whether set-user-ID files are
// refused inside.
func TestShapeOfImage(t *testing.T) {
	spec := runner.Spec{Image: "i", Rootfs: &runner.Rootfs{Layers: []string{"a"}}}
	one, _, _ := ShapeOf(spec, nil)
	spec.Exposed = true
	if other, rest, ok := ShapeOf(spec, nil); other == one || !ok || !rest.Exposed {
		t.Errorf("%q, %+v, %v", other, rest, ok)
	}
	spec.Exposed, spec.Rootfs = false, &runner.Rootfs{Layers: []string{"b"}}
	if other, _, _ := ShapeOf(spec, nil); other == one {
		t.Error("another image is of the same shape")
	}
}
