package integration

import (
	"slices"
	"testing"

	"demesne/integration/fixture"
)

// TestAgentHosted checks that the real programs offer no tools that run on the provider's servers, unless the
// network is open: headless, in research, and at a terminal.
func TestAgentHosted(t *testing.T) {
	for _, c := range []struct {
		model  string
		piped  []string
		hosted []string
	}{
		{"sonnet", []string{"claude", "-p", "work"}, []string{"WebSearch"}},
		{"gpt-5.5", []string{"codex", "exec", "-m", "gpt-5.5", "work"}, []string{"web_search"}},
	} {
		t.Run(c.model, func(t *testing.T) {
			b, m, repo := newProgramBox(t, fixture.Steps(fixture.Answer{Text: "zebra"}))
			for _, row := range []struct {
				args []string
				open bool
			}{
				{[]string{"agent", "run", "--model", c.model, "work"}, false},
				{[]string{"research", "--model", c.model, "work"}, true},
				{append([]string{"agent"}, c.piped...), false},
				{append([]string{"agent", "--egress", "open", "--allow-open-with-inputs"}, c.piped...), true},
			} {
				before := len(m.Log())
				cmd := b.command("demesne", row.args...)
				cmd.Dir = repo
				r := b.finish(cmd)
				var offered []string
				for _, q := range m.Log()[before:] {
					offered = append(offered, q.Tools...)
				}
				if r.code != 0 || len(offered) == 0 {
					t.Errorf("%q: %+v, tools %q", row.args, r, offered)
				}
				for _, tool := range c.hosted {
					if slices.Contains(offered, tool) != row.open {
						t.Errorf("%q: %s among %q: want %t", row.args, tool, offered, row.open)
					}
				}
			}
		})
	}
}
