package cli

import (
	"slices"
	"strings"
	"testing"

	"demesne/cli/app"
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
	if words := helpWords(); !slices.Equal(names, words) {
		t.Errorf("commands and topics %q, helpWords %q", names, words)
	}
	for _, g := range groups() {
		var verbs []string
		for _, v := range g.all() {
			verbs = append(verbs, v.Name)
		}
		if !slices.Equal(verbs, strings.Fields(g.names)) {
			t.Errorf("a group makes %q, its names are %q", verbs, g.names)
		}
	}
}

// TestArguments checks that flags may stand anywhere, except after the start of a foreign command line.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ verb, args, rest string }{
		{"rmi", "a --force b", "a b"},
		{"rmi", "a -- --force", "a --force"},
		{"save", "name -o file --format docker", "name"},
		{"import", "-q dir name", "dir name"},
		{"images", "check --json", "check"},
		{"run", "--json ls --json", "ls --json"},
		{"run", "-- ls", "ls"},
		{"exec", "--json sb --tty ls --tty", "sb ls --tty"},
		{"exec", "sb -- --tty", "sb --tty"},
		{"inspect", "sb --json", "sb"},
	} {
		cmd, err := lookup(c.verb)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := cmd.Line(&app.App{}, nil)
		rest, err := line.Parse(strings.Fields(c.args))
		if err != nil || strings.Join(rest, " ") != c.rest {
			t.Errorf("%s %s: %q, %v; want %q", c.verb, c.args, rest, err, c.rest)
		}
	}
}
