package jobs

import (
	"strings"
	"testing"
)

func TestTraits(t *testing.T) {
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"team", "search", true}, {"a.b/c", "", true}, {"team", "größer", true},
		{"", "x", false}, {"a=b", "x", false}, {"a b", "x", false}, {"a\n", "x", false}, {"a", "x\ny", false}, {"a", "\x1b[2J", false},
		{strings.Repeat("n", 129), "", false}, {"a", strings.Repeat("v", 1025), false},
	} {
		labels := Traits{Labels: map[string]string{c.name: c.value}}
		if err := labels.Check(); (err == nil) != c.ok {
			t.Errorf("%q=%q: %v", c.name, c.value, err)
		}
	}
	has := Traits{Labels: map[string]string{"team": "search", "run": ""}}
	for _, c := range []struct {
		want map[string]string
		ok   bool
	}{
		{nil, true}, {map[string]string{"team": ""}, true}, {map[string]string{"team": "search", "run": ""}, true},
		{map[string]string{"team": "other"}, false}, {map[string]string{"none": ""}, false},
	} {
		if has.Matches(c.want) != c.ok {
			t.Errorf("%v: not %v", c.want, c.ok)
		}
	}
}
