package cli

import (
	"slices"
	"testing"
)

// TestVerbs checks that each command is explained, and that help completes to all commands and topics.
func TestVerbs(t *testing.T) {
	p := program()
	names := p.Verbs()
	for _, c := range p.Commands {
		if c.Group == "" || c.Summary == "" || c.About == "" || len(c.Examples) == 0 {
			t.Errorf("%s: not explained", c.Name)
		}
	}
	for _, topic := range p.Topics {
		names = append(names, topic.Name)
	}
	if !slices.Equal(names, helpWords) {
		t.Errorf("commands and topics %q, helpWords %q", names, helpWords)
	}
}
