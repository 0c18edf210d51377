package engine

import (
	"reflect"
	"testing"

	"demesne/runner"
)

func TestShapeOf(t *testing.T) {
	plain := runner.Spec{Image: "host", Hostname: "h", Out: "/o", Limits: runner.Limits{Memory: 1 << 30}}
	want, rest, ok := shapeOf(plain, nil)
	if !ok || rest.Out != "" || rest.Limits != plain.Limits || rest.Hostname != "h" {
		t.Fatalf("%q, %+v, %v", want, rest, ok)
	}
	for _, c := range []struct {
		name   string
		change func(*runner.Spec)
		fits   bool // some spare
		same   bool // one of the plain shape
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
		{"nesting", func(s *runner.Spec) { s.Nesting = true }, false, false},
		{"network", func(s *runner.Spec) { s.Egress = &runner.Egress{Allow: []string{"a.test"}} }, true, false},
		{"secrets", func(s *runner.Spec) { s.Egress = &runner.Egress{Secrets: []runner.Secret{{}}} }, false, false},
		{"port", func(s *runner.Spec) { s.Publish = []runner.Port{{}} }, false, false},
		{"image", func(s *runner.Spec) { s.Rootfs = &runner.Rootfs{} }, false, false},
		{"persistent", func(s *runner.Spec) { s.Lifetime = runner.Persistent }, false, false},
		{"key", func(s *runner.Spec) { s.Lifetime, s.Key = runner.Persistent, "k" }, false, false},
	} {
		spec := plain
		c.change(&spec)
		if got, _, ok := shapeOf(spec, spec.Egress); ok != c.fits || (got == want) != c.same {
			t.Errorf("%s: %q, %v", c.name, got, ok)
		}
	}
}

// What is allowed does not matter before it is known whose a sandbox will be, and is in no spare.
func TestShapeOfNetwork(t *testing.T) {
	one, rest, ok := shapeOf(runner.Spec{}, &runner.Egress{Mode: "open", Allow: []string{"a.test"}, Log: "/l", Upstream: map[string]string{"A": "b"}})
	if !ok || !reflect.DeepEqual(rest.Egress, &runner.Egress{}) {
		t.Errorf("%+v, %v", rest.Egress, ok)
	}
	if other, _, _ := shapeOf(runner.Spec{}, &runner.Egress{Learn: true}); other != one {
		t.Errorf("%q is not %q", other, one)
	}
	if other, _, _ := shapeOf(runner.Spec{}, &runner.Egress{GoProxy: true}); other == one {
		t.Error("a server inside is no shape of its own")
	}
}

// One more is kept for each that was missed, of one shape at a time and never more than may be.
func TestSparesTake(t *testing.T) {
	p := &spares{most: 2}
	add := func() *spare {
		sp := &spare{made: make(chan struct{})}
		p.list = append(p.list, sp)
		return sp
	}
	for i, want := range []int{1, 2, 2} {
		if sp, unfit := p.take("a", runner.Spec{}); sp != nil || unfit != nil || p.want != want {
			t.Errorf("miss %d: %v, %v, want %d", i, sp, unfit, p.want)
		}
	}
	first, second := add(), add()
	if sp, _ := p.take("a", runner.Spec{}); sp != first || p.want != 2 || len(p.list) != 1 {
		t.Errorf("not the oldest: %p of %p, %p", sp, first, second)
	}
	if sp, unfit := p.take("b", runner.Spec{}); sp != nil || len(unfit) != 1 || unfit[0] != second || p.want != 1 || len(p.list) != 0 {
		t.Errorf("another shape: %v, %v, want %d", sp, unfit, p.want)
	}
	if p.most = 0; p.want > 0 {
		p.take("c", runner.Spec{})
		if p.want != 0 {
			t.Errorf("none may be kept, and %d are wanted", p.want)
		}
	}
	sp := add()
	if !p.remove(sp) || p.remove(sp) {
		t.Error("removed other than once")
	}
}
