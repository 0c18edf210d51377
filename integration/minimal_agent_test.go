package integration

import (
	"slices"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestMinimalAgents checks that an agent of the machine's own installation works at the level minimal: it finds its inputs,
// configuration, model and tools, and its children share its workspace and find their siblings. All texts name the paths
// that its sandbox has.
func TestMinimalAgents(t *testing.T) {
	program(t, "curl")
	child := fixture.Steps(shell(`cat "$DEMESNE_IN/note.txt" > "$DEMESNE_OUT/done"; cat "$DEMESNE_WORKSPACE/w"; cat ../../../child/*/done 2>/dev/null; grep previous CONTEXT.txt`), fixture.Answer{Text: "Child done."})
	parent := fixture.Steps(
		shell(`cd "$DEMESNE_WORKSPACE" && echo shared > w; cat .demesne-agents/*/CONTEXT.txt`),
		childTool("agent", map[string]any{"name": "one", "prompt": "CHILD"}),
		childTool("script", map[string]any{"name": "verify", "command": `cat "$DEMESNE_WORKSPACE/w" > v; pwd`}),
		shell(`cat "$DEMESNE_OUT"/child/*/done; cat "$DEMESNE_OUT/child/verify/v"; test -w "$HOME" && echo home; curl -s http://127.0.0.1:22/ || echo refused`),
		fixture.Answer{Text: "Parent done."})
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "CHILD") {
			return child(r)
		}
		return parent(r)
	})
	b.under = []string{tools + "/nons"}
	r := b.agentTree("Orchestrate in /workspace.", "--in", b.file("note.txt", "a note\n", 0o644), "--criterion", "copy.txt exists")
	if r.code != 0 || r.stdout != "Parent done.\n" {
		t.Fatalf("%+v", r.result)
	}
	transcript := r.file(t, "out/transcript.jsonl")
	for _, want := range []string{"- `" + r.dir + "/workspace` is for your work", "- `" + r.dir + "/out` is the only place", "`$DEMESNE_IN` has the inputs", "Orchestrate in /workspace.", "Child done.", `a note\nshared\nhome\nrefused`, r.dir + "/out/child/verify"} {
		if !strings.Contains(transcript, want) {
			t.Errorf("the transcript has no %q", want)
		}
	}
	if got := r.file(t, "out/child/one/transcript.jsonl"); !strings.Contains(got, "shared") {
		t.Errorf("the child's transcript: %s", got)
	}
	for _, req := range m.Log() {
		if req.Header.Get("X-Api-Key") != realKey {
			t.Errorf("request with the key %q", req.Header.Get("X-Api-Key"))
		}
	}
	b.nowhere(r.dir, realKey)
	if got := names(r.dir + "/home"); len(got) == 0 || slices.Contains(got, ".cache") {
		t.Errorf("a follow-up would have a home with %q", got)
	}
}
