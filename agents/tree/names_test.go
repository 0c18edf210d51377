package tree

import (
	"strings"
	"testing"
)

// TestChildNames checks the texts for names that a child cannot have.
func TestChildNames(t *testing.T) {
	for name, want := range map[string]string{
		"a": "", "0": "", "map-1": "", strings.Repeat("x", 40): "",
		"":                      "name is required",
		strings.Repeat("x", 41): "name must be at most 40 characters",
		"A":                     `invalid child name "A": use lowercase letters, digits, and interior hyphens only`,
		"-a":                    `invalid child name "-a": use lowercase letters, digits, and interior hyphens only`,
		"a-":                    `invalid child name "a-": use lowercase letters, digits, and interior hyphens only`,
		"../x":                  `invalid child name "../x": use lowercase letters, digits, and interior hyphens only`,
	} {
		got := ""
		if err := checkChild(name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	var n names
	release, err := n.reserve("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.reserve("x"); err == nil || err.Error() != `child name "x" is already used in this sandbox` {
		t.Error(err)
	}
	release()
	if _, err := n.reserve("x"); err != nil {
		t.Error(err)
	}
}
