package integration

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// TestAgentWorkspace runs an agent without a terminal on a directory of the user. The agent and its children can change
// it, except the files that this machine would execute later. New ones are named, and nothing else of the run remains.
func TestAgentWorkspace(t *testing.T) {
	const attack = `cd /workspace; for f in .envrc .git/hooks/pre-commit .git/config .vscode/tasks.json; do echo evil >> $f || echo denied; rm -f $f; mv ${f%/*} moved; done 2>/dev/null; ls -A`
	b, _ := newAgentBox(t, fixture.Steps(
		shell("cat CONTEXT.txt; cd /workspace; echo by the agent >> code.txt; mkdir -p .idea/runConfigurations; echo x > .idea/runConfigurations/x.xml; "+attack),
		childTool("script", map[string]any{"name": "evil", "command": "echo by a child >> /workspace/code.txt; " + attack}),
		fixture.Answer{Text: "Done."}))
	b.prepareHome()
	repo := b.repository("repo")
	b.host(repo, `mkdir -p .vscode; echo safe | tee .envrc .vscode/tasks.json > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; echo code > code.txt; ls -A > ../before; git config user.tidy yes; cat .git/config > ../config`)
	cmd := b.command("demesne", "agent", "run", "Mend it.", "--workspace", "repo")
	cmd.Dir = b.home
	r := b.finish(cmd)
	if r.code != 0 || r.stdout != "Done.\n" {
		t.Fatalf("%+v", r)
	}
	if got, _ := os.ReadFile(repo + "/code.txt"); string(got) != "code\nby the agent\nby a child\n" {
		t.Errorf("the project has %q", got)
	}
	for _, f := range []string{".envrc", ".git/hooks/pre-commit", ".vscode/tasks.json"} {
		if got, _ := os.ReadFile(repo + "/" + f); string(got) != "safe\n" {
			t.Errorf("%s is %q", f, got)
		}
	}
	b.host(repo, `cmp .git/config ../config; test ! -e .demesne`)
	if !strings.Contains(r.stderr, "review before use: "+repo+"/.idea/runConfigurations/x.xml (new), which JetBrains would execute") {
		t.Errorf("stderr: %s", r.stderr)
	}
	var st syscall.Stat_t
	if err := syscall.Stat(repo+"/.idea", &st); err != nil || int(st.Uid) != os.Getuid() {
		t.Errorf(".idea belongs to %d: %v", st.Uid, err)
	}
	runs := names(b.out)
	transcript, _ := os.ReadFile(b.out + "/" + runs[len(runs)-1] + "/out/transcript.jsonl")
	if !strings.Contains(string(transcript), "user's project") || strings.Count(string(transcript), "denied") < 6 {
		t.Errorf("transcript: %.4000s", transcript)
	}
}

// TestAgentWorkspaceRefused checks directories that an agent must not have, and that a refused run leaves nothing.
func TestAgentWorkspaceRefused(t *testing.T) {
	b, _ := newAgentBox(t, nil)
	b.prepareHome()
	b.file("h/file", "", 0o644)
	b.host(b.home, "ln -s . link")
	elsewhere := b.mkdir("elsewhere")
	for dir, want := range map[string]string{
		"":                 "empty",
		b.home:             "it contains your home directory",
		b.home + "/link":   "it contains your home directory",
		b.dir:              "it contains your home directory",
		"/":                "it contains your home directory",
		b.home + "/file":   "not a directory",
		b.home + "/absent": "no such file or directory",
	} {
		if r := b.demesne("agent", "run", "--workspace", dir, "x"); r.code != 125 || !strings.Contains(r.stderr, want) || len(names(b.out)) > 0 {
			t.Errorf("%q: %+v, outputs %q", dir, r, names(b.out))
		}
	}
	if r := b.demesne("agent", "run", "--background", "--workspace", b.home, "x"); r.code != 125 || !strings.Contains(r.stderr, "it contains your home directory") {
		t.Errorf("in the background: %+v", r)
	}
	if r := b.demesne("research", "--workspace", b.home+"/x", "x"); r.code == 0 || !strings.Contains(r.stderr, "--workspace") {
		t.Errorf("research: %+v", r)
	}
	b.extra = append(b.extra, "DEMESNE_OUTPUT_ROOT="+elsewhere+"/runs")
	if r := b.demesne("agent", "run", "--workspace", elsewhere, "x"); r.code != 125 || !strings.Contains(r.stderr, "it contains the directory of the run") {
		t.Errorf("the directory of the outputs: %+v", r)
	}
}
