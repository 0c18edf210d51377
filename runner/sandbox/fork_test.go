package sandbox

import (
	"reflect"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
)

// TestReplace checks that a fork's routes replace its source's, without credentials, and do not change the source.
func TestReplace(t *testing.T) {
	source := runner.Egress{Mode: "package-managers", Routes: []runner.Route{{Port: 1, Record: "a"}, {Port: 2, Record: "b"}}}
	spec := runner.Spec{Egress: &source}
	own := runner.Route{Port: 2, Record: "c", Token: "token", Header: map[string]string{"A": "b"}}
	if err := replace(&spec, api.ForkRequest{Routes: []runner.Route{own}}); err != nil {
		t.Fatal(err)
	}
	if want := []runner.Route{{Port: 1, Record: "a"}, {Port: 2, Record: "c"}}; !reflect.DeepEqual(spec.Egress.Routes, want) || spec.Egress.Mode != source.Mode {
		t.Errorf("%+v", spec.Egress)
	}
	if source.Routes[1].Record != "b" {
		t.Error("the source changed")
	}
	for _, spec := range []runner.Spec{{}, {Egress: &source}} {
		if err := replace(&spec, api.ForkRequest{Routes: []runner.Route{{Port: 3}}}); err == nil {
			t.Errorf("%+v: no error for a route that the source does not have", spec)
		}
	}
}
