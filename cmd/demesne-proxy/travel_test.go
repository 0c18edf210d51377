package main

import (
	"fmt"
	"testing"

	"demesne/proxy/policy"
	"demesne/proxy/preset"
)

// TestRulesTravel checks that every rule of a mode, a mirror or a file parses back to itself, because rules are
// passed on as text.
func TestRulesTravel(t *testing.T) {
	h := machine(t, map[string]string{
		"/home/me/.npmrc": "registry=https://npm.corp.test/\n",
		"/p.yaml": "rule:\n- allow: api.test:80\n  methods: [GET, HEAD]\n  path: /v1/*\n  max-bytes: 5\n  max-requests: 6\n  max-connections: 7\n" +
			"- allow: corp.test\n  private: true\n  ech: true\n- deny: tcp://x.test:1-5,9\n",
	}, nil)
	f, err := readPolicy(h.root + "/p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := append(f.Policy.Allowed(), f.Policy.Denied()...)
	if len(rules) != 3 {
		t.Fatalf("%d rules", len(rules))
	}
	mirrors, _ := h.mirrors()
	for _, m := range mirrors {
		rules = append(rules, m.rule)
	}
	managers, err := preset.Parse("package-managers")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append(rules, managers.Rules()...) {
		back, err := policy.ParseRule(r.Words())
		if err != nil || fmt.Sprintf("%#v", back) != fmt.Sprintf("%#v", r) {
			t.Errorf("%q: %v\n%#v\n%#v", r, err, back, r)
		}
	}
}
