package rules

import "testing"

// TestRuleLeaves checks that each package of internal has several users: the helper of one package belongs there.
func TestRuleLeaves(t *testing.T) {
	all := sources(t)
	for leaf := range all {
		if room(leaf) != "internal" {
			continue
		}
		users := 0
		for _, p := range all {
			if p.imports["demesne/"+leaf] || p.testOnly["demesne/"+leaf] {
				users++
			}
		}
		if users < 2 {
			t.Errorf("%s has %d users, and a leaf needs two", leaf, users)
		}
	}
}
