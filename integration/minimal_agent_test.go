package integration

import (
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestMinimalAgents checks that an agent of the machine's own installation works at the level minimal: it finds its
// configuration, its model and its tools, starts a child, and leaves its results.
func TestMinimalAgents(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		return fixture.Answer{Text: "Done."}
	})
	b.under = []string{tools + "/nons"}
	r := b.agentTree("Work.")
	if r.code != 0 || !strings.Contains(r.stdout, "Done.") {
		t.Fatalf("%+v", r.result)
	}
	_ = m
}
