package integration

import (
	"strings"
	"testing"
)

// TestAgentSettings checks that the chosen parts of the user's own settings are in the agent's home, and others are not. In a
// home that is kept, what the user wrote replaces what the agent wrote.
func TestAgentSettings(t *testing.T) {
	b, _, proj := newScriptBox(t)
	b.file("h/.script/skills/a/SKILL.md", "a skill", 0o644)
	b.file("h/.script/memory", "remember", 0o644)
	b.file("h/.script/auth.json", "secret", 0o600)
	const show = "find ~/.script -type f | sort | xargs grep -H .; echo changed > ~/.script/skills/a/SKILL.md"
	for range 2 {
		if r := b.works(proj, "--settings", "skills,memory", show); r.stdout != "/home/agent/.script/memory:remember\n/home/agent/.script/skills/a/SKILL.md:a skill\n" {
			t.Errorf("%q", r.stdout)
		}
	}
	if r := b.works(proj, "--fresh", "--settings", "memory", "ls -A ~/.script"); r.stdout != "memory\n" {
		t.Errorf("only memory: %q", r.stdout)
	}
	if r := b.works(proj, "--fresh", "ls -A ~"); strings.Contains(r.stdout, ".script\n") {
		t.Errorf("without --settings: %q", r.stdout)
	}
	for list, want := range map[string]string{"hooks": `unknown (known: skills, commands, memory)`, "commands": `agent "script" has no commands`} {
		if r := b.agentIn(proj, "--settings", list, "true"); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", list, r)
		}
	}
}
