package network

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// TestAdmitRoutes checks which routes are refused, and that a Spec never has their credentials.
func TestAdmitRoutes(t *testing.T) {
	route := func(port uint16) runner.Route {
		return runner.Route{Port: port, To: "https://a.test", Allow: []string{"GET /"}, Token: "hidden-token-0123456789", Header: map[string]string{"A": "hidden"}}
	}
	var many []runner.Route
	for i := range mostRoutes + 1 {
		many = append(many, route(uint16(i+1)))
	}
	for want, e := range map[string]runner.Egress{
		"":                           {Routes: []runner.Route{route(1), route(2)}},
		"33 routes, more than 32":    {Routes: many},
		"a route without a port":     {Routes: []runner.Route{route(0)}},
		"two routes on port 8088":    {Routes: []runner.Route{route(8088), route(8088)}},
		"the Go module proxy has":    {Routes: []runner.Route{route(8087)}, GoProxy: true},
		"the caller listens on this": {Routes: []runner.Route{route(8089)}, Listen: []uint16{8089}},
		"or in use there":            {Listen: []uint16{8089, 8089}},
	} {
		spec := runner.Spec{Egress: &e}
		whole, err := Admit(&spec, nil)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) || ipc.AsError(err).Code != ipc.CodeInvalid {
				t.Errorf("%v, want %q", err, want)
			}
			continue
		}
		if err != nil || whole == nil || len(whole.Routes) != 2 || whole.Routes[0].Token == "" {
			t.Fatalf("%+v, %v", whole, err)
		}
		text, _ := json.Marshal(spec)
		if said := string(text) + fmt.Sprintf("%v %+v %#v", *spec.Egress, whole.Routes, whole.Routes); strings.Contains(said, "hidden") || !strings.Contains(said, "https://a.test") {
			t.Errorf("the Spec tells: %s", said)
		}
		if word := Leaks(&runner.Spec{Inputs: []runner.Input{{Path: "/i"}}}, spec.Egress, false); word != "" {
			t.Errorf("a route beside an input: %s", word)
		}
	}
	short := runner.Egress{Routes: []runner.Route{{Port: 1, Token: "hidden"}}}
	if err := AdmitTokens(&short); err == nil || strings.Contains(err.Error(), "hidden") || AdmitTokens(nil) != nil {
		t.Error(err)
	}
}

// TestRouteCredentials checks how credentials are put back into routes, and how headers are replaced.
func TestRouteCredentials(t *testing.T) {
	kept := []runner.Route{{Port: 1, To: "a"}, {Port: 2, To: "b"}}
	got := WithCredentials(kept, []runner.Route{{Port: 2, To: "evil", Token: "t", Header: map[string]string{"A": "1"}}, {Port: 3, Token: "u"}})
	if want := []runner.Route{{Port: 1, To: "a"}, {Port: 2, To: "b", Token: "t", Header: map[string]string{"A": "1"}}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%#v", got)
	}
	if lacks := Tokenless(&runner.Egress{Routes: got}); !reflect.DeepEqual(lacks, []string{"127.0.0.1:1"}) || Tokenless(nil) != nil {
		t.Errorf("%q", lacks)
	}
	changed, err := withHeaders(got, map[uint16]map[string]string{2: {"B": "2"}})
	if err != nil || changed[1].Header["B"] != "2" || len(changed[1].Header) != 1 || got[1].Header["A"] != "1" || changed[1].Token != "t" {
		t.Errorf("%v, %v", changed, err)
	}
	if _, err := withHeaders(got, map[uint16]map[string]string{3: nil}); err == nil {
		t.Error("headers for no route")
	}
}

func TestRouteWord(t *testing.T) {
	for want, c := range map[string]struct {
		plan   proxyclient.Plan
		routes int
	}{
		"filtered: 0 rules, 1 route": {proxyclient.Plan{}, 1},
		"filtered: 1 rule, 2 routes": {proxyclient.Plan{Rules: 1}, 2},
		"open, 1 route":              {proxyclient.Plan{Open: true, Rules: 1}, 1},
	} {
		if got := word(c.plan, c.routes); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
