package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAttribution checks that the output of a run and its session files name the same requests.
func TestAttribution(t *testing.T) {
	out, _ := newTranscript("claude")
	out.Write(testdata(t, "claude-subagent.jsonl"))
	files, _ := newTranscript("claude")
	for name, c := range map[string]struct {
		t    *Transcript
		home *os.Root
	}{"claude-subagent.attribution": {out, nil}, "claude-home.attribution": {files, openRoot(t, "testdata/home")}} {
		dir := openRoot(t, t.TempDir())
		if err := c.t.WriteAttribution(dir, c.home); err != nil {
			t.Fatal(err)
		}
		got := read(t, dir, "attribution.jsonl")
		golden(t, name, got)
		if !strings.Contains(got, `"attributionAgent":"general-purpose"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestAttributionNone(t *testing.T) {
	tr, _ := newTranscript("claude")
	dir := openRoot(t, t.TempDir())
	must(t, tr.WriteAttribution(dir, openRoot(t, t.TempDir())))
	if _, err := dir.Lstat("attribution.jsonl"); err == nil {
		t.Error("wrote a file without an attribution")
	}
}

// TestAttributionHostile checks that links, directories and fifos in a sandbox's home are not read.
func TestAttributionHostile(t *testing.T) {
	home, outside := t.TempDir(), t.TempDir()
	line := []byte(`{"requestId":"req_1","attributionSkill":"outside"}` + "\n")
	must(t, os.WriteFile(filepath.Join(outside, "a.jsonl"), line, 0o600))
	projects := filepath.Join(home, ".claude/projects")
	must(t, os.MkdirAll(filepath.Join(projects, "dir.jsonl"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(projects, "linked")))
	must(t, os.Symlink(filepath.Join(outside, "a.jsonl"), filepath.Join(projects, "b.jsonl")))
	must(t, mkfifo(filepath.Join(projects, "c.jsonl")))
	own := `{"requestId":"req_2","attributionPlugin":"p\u001b","attributionSkill":"s"}` + "\n" + strings.Repeat("x", longestLine+1) + "\nno JSON\n" +
		`{"requestId":"req_2","attributionAgent":"a"}` + "\n" + `{"attributionAgent":"without a request"}` + "\n" + `{"requestId":"req_3"}`
	must(t, os.WriteFile(filepath.Join(projects, "dir.jsonl", "own.jsonl"), []byte(own), 0o600))
	tr, _ := newTranscript("claude")
	dir := openRoot(t, t.TempDir())
	must(t, tr.WriteAttribution(dir, openRoot(t, home)))
	want := `{"requestId":"req_2","attributionAgent":"a","attributionSkill":"s","attributionPlugin":"p?"}` + "\n"
	if got := read(t, dir, "attribution.jsonl"); got != want {
		t.Errorf("got %s", got)
	}
	linked := t.TempDir()
	must(t, os.Symlink(home+"/.claude", linked+"/.claude"))
	tr, _ = newTranscript("claude")
	must(t, tr.WriteAttribution(dir, openRoot(t, linked)))
	if len(tr.all.order) > 0 {
		t.Error("read through a link")
	}
}

func TestAttributionBounded(t *testing.T) {
	var all attributions
	for i := range maxAttributions + 10 {
		all.add(attribution{RequestID: strings.Repeat("r", 10) + string(rune('0'+i%10)) + strings.Repeat("x", i/10%200) + string(rune(i+0x4e00)), Agent: "a"})
	}
	if len(all.order) > maxAttributions {
		t.Errorf("%d requests", len(all.order))
	}
}
