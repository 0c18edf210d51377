package integration

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestAgentSettings checks that the chosen parts of the user's own settings are in the agent's home, and others are not. In a
// home that is kept, what the user wrote replaces what the agent wrote.
func TestAgentSettings(t *testing.T) {
	b, _, proj := newScriptBox(t)
	b.file("h/.script/skills/a/SKILL.md", "a skill", 0o644)
	b.file("h/.script/MEMORY.md", "remember", 0o644)
	b.file("h/.script/auth.json", "secret", 0o600)
	const show = "find ~/.script -type f | sort | xargs tail -vn1; echo changed > ~/.script/skills/a/SKILL.md"
	for range 2 {
		if r := b.works(proj, "--settings", "skills,memory", show); r.stdout != "==> /home/agent/.script/MEMORY.md <==\nremember\n==> /home/agent/.script/skills/a/SKILL.md <==\na skill" &&
			r.stdout != "==> /home/agent/.script/MEMORY.md <==\nremember\n\n==> /home/agent/.script/skills/a/SKILL.md <==\na skill" {
			t.Errorf("%q", r.stdout)
		}
	}
	if r := b.works(proj, "--fresh", "--settings", "memory", "ls -A ~/.script"); r.stdout != "MEMORY.md\n" {
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

// TestAgentSettingsPrograms checks that real programs find the copies: the requests to the model contain them.
func TestAgentSettingsPrograms(t *testing.T) {
	b, m, repo := newProgramBox(t, fixture.Steps(fixture.Answer{Text: "done"}))
	for name, c := range map[string]struct {
		dir, memory string
		args        []string
	}{
		"claude": {".claude", "CLAUDE.md", []string{"-p", "hello"}},
		"codex":  {".codex", "AGENTS.md", []string{"exec", "hello"}},
	} {
		b.file("h/"+c.dir+"/skills/counting/SKILL.md", "---\nname: counting\ndescription: okapi "+name+"\n---\nCount.\n", 0o644)
		b.file("h/"+c.dir+"/"+c.memory, "quokka "+name+"\n", 0o644)
		before := len(m.Log())
		cmd := b.command("demesne", append([]string{"agent", "--settings", "skills,memory", name}, c.args...)...)
		cmd.Dir = repo
		r := b.finish(cmd)
		for _, want := range []string{"okapi " + name, "quokka " + name} {
			if !slices.ContainsFunc(m.Log()[before:], func(q fixture.ModelRequest) bool { return bytes.Contains(q.Body, []byte(want)) }) {
				t.Errorf("no request of %s has %q: %+v", name, want, r)
			}
		}
	}
}
