package daemon

import (
	"fmt"
	"testing"

	"demesne/proxy/policy"
)

// TestRulesTravel checks that every rule of a mode, a mirror or a file parses back to itself, because rules are
// passed on as text.
func TestRulesTravel(t *testing.T) {
	h := machine(t, map[string]string{
		"/home/me/.npmrc": "registry=https://npm.corp.test/\n",
		"/p.toml": `
[[rule]]
allow = "api.test:80"
methods = ["GET", "HEAD"]
path = "/v1/*"
max-bytes = 5
max-requests = 6
max-connections = 7
[[rule]]
allow = "corp.test"
private = true
ech = true
[[rule]]
deny = "tcp://x.test:1-5,9"
`,
	}, nil)
	f, err := readPolicy(h.root + "/p.toml")
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
	managers, err := policy.ParseMode("package-managers")
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
