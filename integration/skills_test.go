package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// skillWork has, for words of each prompt in the skills, what the scripted model has its agent do.
var skillWork = []struct{ prompt, shell string }{
	{"the documents below /in/part-", `for f in /in/part-*/*; do printf '{"source":"%s","quote":"%s","topic":"late"}\n' "$(basename $f)" "$(cat $f)"; done > /out/facts.jsonl`},
	{"Group the facts below", `{ echo '| topic | sources |'; echo "| late | $(cat /in/facts-*.jsonl | grep -c late) |"; } > /out/report.md`},
	{"Argue that the service should move", `ls /in/evidence > /out/for.md`},
	{"Argue that the service should not move", `ls /in/evidence > /out/against.md`},
	{"Judge the two statements", `cmp /in/for.md /in/against.md && echo draw > /out/verdict.md`},
	{"The change /in/first-bad.patch", `grep '^+bad' /in/first-bad.patch > /out/explanation.md`},
	{"Extract the invoice", `printf '{"number":"7","date":"2026-11-22","total":12.5,"sources":{"number":"no. 7","date":"22 Nov 2026","total":"12.50"}}' > /out/row.json`},
	{"Replace old_call by new_call", `cp -r /in/project /workspace/project && cd /workspace/project && sed 's/old_call(a, b)/new_call(b, a)/' a.py > b && { diff -u --label a/a.py --label b/a.py a.py b > /out/change.patch; test -s /out/change.patch; }`},
	{"the number of distinct words", `echo 'sort -u "$1" | wc -l' > /out/solve.sh`},
}

// skillModel is the model of the skills' agents.
func skillModel(r fixture.ModelRequest) fixture.Answer {
	for _, w := range skillWork {
		if strings.Contains(r.Prompt, w.prompt) {
			return fixture.Steps(shell("set -e; "+w.shell), fixture.Answer{Text: "Done."})(r)
		}
	}
	return fixture.Answer{Text: "no work for " + r.Prompt}
}

// skillFiles makes the directories that the skills' calls name.
func (b *box) skillFiles() map[string]string {
	b.Helper()
	for name, text := range map[string]string{
		"corpus/part-1/a.txt": "late again", "corpus/part-2/b.txt": "late twice", "evidence/load.md": "load", "evidence/cost.md": "cost",
		"inbox/invoice-1.txt": "Invoice no. 7 of 22 Nov 2026, 12.50 in all", "project/a.py": "old_call(a, b)\n", "task/words.txt": "a\nb\na\nc\n",
		"test/check.sh": "! grep -q bad f\n",
	} {
		b.file(name, text, 0o644)
	}
	repo := b.mkdir("repo")
	history := `git init -q . && for n in 1 2 3 4 5; do test $n = 4 && echo bad >> f; echo $n >> f; git add f; git -c user.name=t -c user.email=t@example.org commit -qm $n; done`
	cmd := exec.Command("sh", "-ec", history)
	cmd.Dir, cmd.Env = repo, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("make a repository: %v: %s", err, out)
	}
	at := map[string]string{}
	for _, name := range []string{"corpus", "evidence", "inbox", "project", "task", "test", "repo"} {
		at[name] = b.dir + "/" + name
	}
	return at
}

// skillEnds has, for each skill, a text that the output of its last call has if every part of the work reached it.
var skillEnds = map[string]string{
	"map-reduce": "| late | 2 |", "debate": "draw", "bisect": "+bad", "document-etl": "7 12.5", "migration-sweep": "", "tournament": "",
}

// TestSkills executes the calls in examples/skills/*/SKILL.md over MCP, in order. Each has to succeed.
func TestSkills(t *testing.T) {
	skills, _ := filepath.Glob("../examples/skills/*/SKILL.md")
	if len(skills) < 6 {
		t.Fatalf("skills: %q", skills)
	}
	program(t, "git")
	for _, path := range skills {
		name := filepath.Base(filepath.Dir(path))
		t.Run(name, func(t *testing.T) {
			b, _ := newAgentBox(t, skillModel)
			end, known := skillEnds[name]
			if got := skill(t, b.mcp(), readFile(t, path), b.skillFiles()); !known || !strings.Contains(got, end) {
				t.Errorf("the last call left %q, want %q", got, end)
			}
		})
	}
}

// skill executes the calls of one skill, and returns what the last one printed or wrote to its output_path. $1 is the
// output_dir of its first call; $corpus and others are directories.
func skill(t *testing.T, c *mcpClient, text string, at map[string]string) (last string) {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) < 2 || !strings.HasPrefix(text, "---\nname: ") {
		t.Errorf("%d calls, or no front matter", len(blocks))
	}
	for i, block := range blocks {
		var call struct {
			Tool      string
			Arguments args
		}
		if err := json.Unmarshal([]byte(block[1]), &call); err != nil {
			t.Fatalf("call %d: %v", i+1, err)
		}
		for _, list := range []string{"files", "directories"} {
			paths, _ := call.Arguments[list].([]any)
			for j, p := range paths {
				paths[j] = expand(t, p.(string), at)
			}
		}
		r := c.must(call.Tool, call.Arguments)
		if r.field("exit_code") != "0" {
			t.Fatalf("call %d: %s", i+1, r.Text)
		}
		last = r.field("stdout")
		if out, ok := call.Arguments["output_path"].(string); ok {
			last = readFile(t, r.field("output_dir")+strings.TrimPrefix(out, "/out"))
		}
		at[strconv.Itoa(i+1)] = r.field("output_dir")
	}
	return last
}

// expand replaces the name after $ at the beginning of a path.
func expand(t *testing.T, path string, at map[string]string) string {
	t.Helper()
	name, rest, _ := strings.Cut(strings.TrimPrefix(path, "$"), "/")
	if at[name] == "" {
		t.Fatalf("%s: no such directory", path)
	}
	return strings.TrimSuffix(at[name]+"/"+rest, "/")
}
