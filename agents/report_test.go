package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"demesne/runner"
	"demesne/session"
)

func mkfifo(path string) error { return syscall.Mkfifo(path, 0o600) }

// agentDir makes the directory of an agent that used the tokens of one request each of the models.
func agentDir(t testing.TB, dir string, results *Results, models ...string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o700))
	root := openRoot(t, dir)
	m := NewMeter("messages")
	for i, model := range models {
		m.Add(request(fmt.Sprintf("req_%d", i), model, session.Tokens{Input: 1000, Output: 100, CacheCreation: 10, CacheRead: 3000}))
	}
	m.Add(runner.UsageRecord{Status: 200, Missing: true, Time: lab})
	must(t, m.WriteFiles(root))
	if results != nil {
		results.Sum(m)
		must(t, results.Write(root))
	}
}

// tree makes a job of an agent with two children, one of them with a child of its own, in dir/place.
func tree(t testing.TB, dir, place string) {
	grandchild := Results{JobID: "j3", Tool: "sandbox_research", Name: "deep", Depth: 2}
	agentDir(t, filepath.Join(dir, place, "child/b/child/deep"), &grandchild, "claude-haiku-4-5-20251001")
	b := Results{JobID: "j2", Tool: "sandbox_agent", Name: "b", Depth: 1, Children: []Results{grandchild}}
	agentDir(t, filepath.Join(dir, place, "child/b"), &b, "claude-opus-4-5")
	a := Results{JobID: "j1", Tool: "sandbox_agent", Name: "a", Depth: 1, ExitCode: 1}
	agentDir(t, filepath.Join(dir, place, "child/a"), &a, "gpt-5.6-sol", "gpt-5.6-sol")
	first := Results{JobID: "j0", Tool: "sandbox_agent", Children: []Results{a, b}}
	agentDir(t, filepath.Join(dir, place), &first, "claude-sonnet-5", "claude-sonnet-5", "claude-sonnet-5")
	must(t, os.WriteFile(filepath.Join(dir, place, "attribution.jsonl"),
		[]byte(`{"requestId":"req_1","attributionAgent":"Explore"}`+"\n"+`{"requestId":"req_2","attributionSkill":"review"}`+"\n"+`{"requestId":"req_9","attributionAgent":"liar"}`+"\n"), 0o600))
}

func TestResults(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, ".")
	golden(t, "results.json.golden", read(t, openRoot(t, dir), "results.json"))
	if info, err := os.Stat(dir + "/results.json"); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

func TestReadReport(t *testing.T) {
	want := ""
	for _, place := range []string{"sidecar-results", "out", "."} {
		dir := t.TempDir()
		tree(t, dir, place)
		r, err := ReadReport(openRoot(t, dir))
		must(t, err)
		b, err := json.MarshalIndent(r, "", "  ")
		must(t, err)
		if want == "" {
			golden(t, "report.json.golden", string(b)+"\n")
			golden(t, "report.txt.golden", ReportText(r))
			want = string(b)
		}
		if string(b) != want {
			t.Errorf("%s: %s", place, b)
		}
		var results Results
		if !readJSON(openRoot(t, filepath.Join(dir, place)), resultsName, &results) || results.Total != r.TotalCost {
			t.Errorf("results.json says %v, the report %v", results.Total, r.TotalCost)
		}
	}
}

// TestReadReportStated checks that results.json stands for children without a directory.
func TestReadReportStated(t *testing.T) {
	whole, flat := t.TempDir(), t.TempDir()
	tree(t, whole, ".")
	tree(t, flat, ".")
	must(t, os.RemoveAll(flat+"/child"))
	a, err := ReadReport(openRoot(t, whole))
	must(t, err)
	b, err := ReadReport(openRoot(t, flat))
	must(t, err)
	a.Dropped, b.Dropped = DroppedUsage{}, DroppedUsage{}
	if x, y := ReportText(a), ReportText(b); x != y {
		t.Errorf("got\n%s\nwant\n%s", y, x)
	}
}

func TestReadReportEmpty(t *testing.T) {
	dir := openRoot(t, t.TempDir())
	if _, err := ReadReport(dir); err == nil {
		t.Error("no error for a directory without usage")
	}
	must(t, NewMeter("messages").WriteFiles(dir))
	r, err := ReadReport(dir)
	must(t, err)
	b, _ := json.Marshal(r)
	const want = `{"total_cost_usd":0,"token_type_totals":{"input":0,"output":0,"cache_creation":0,"cache_read":0},"cache_read_pct":0,"by_model":null,"by_child":null,"by_subagent":null,"dropped":{"parse_errors":0,"no_usage_block":0}}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
}

// TestReadReportSums checks that usage.json stands for a lost usage.jsonl, in either form.
func TestReadReportSums(t *testing.T) {
	for _, usage := range []string{"messages", "responses"} {
		dir := openRoot(t, t.TempDir())
		m := NewMeter(usage)
		m.Add(request("a", "sonnet", session.Tokens{Input: 1, Output: 2, CacheRead: 4}))
		must(t, m.WriteFiles(dir))
		must(t, dir.Remove("usage.jsonl"))
		r, err := ReadReport(dir)
		must(t, err)
		if r.Totals != (session.Tokens{Input: 1, Output: 2, CacheRead: 4}) || r.TotalCost != m.Cost() {
			t.Errorf("%s: %+v", usage, r)
		}
	}
}

// TestReadReportHostile reads what a malicious agent can leave in its /out.
func TestReadReportHostile(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	agentDir(t, outside, nil, "claude-opus-4-5")
	out := filepath.Join(dir, "out")
	must(t, os.MkdirAll(out+"/child/fifo", 0o700))
	must(t, os.WriteFile(out+"/usage.jsonl", []byte(`{"model":"sonnet","input":-1000000}`+"\n"+strings.Repeat("x", 100_000)+"\n[]\n{}\n"+
		`{"model":"sonnet","input":1000000}`+"\n"+`{"model":"\u001b[2J","input":"many"}`+"\n"), 0o600))
	must(t, os.WriteFile(out+"/results.json", []byte(`{"children":[{"name":"a\u001b","per_model_tokens":{"opus":{"input":-5}}},{"name":"linked"}]}`), 0o600))
	must(t, os.Symlink(outside, out+"/child/linked"))
	must(t, mkfifo(out+"/child/fifo/usage.jsonl"))
	must(t, os.Symlink(outside+"/usage.jsonl", out+"/attribution.jsonl"))
	deep := out
	for range 80 {
		deep += "/child/d"
		must(t, os.MkdirAll(deep, 0o700))
		must(t, os.WriteFile(deep+"/usage.json", nil, 0o600))
	}
	r, err := ReadReport(openRoot(t, dir))
	must(t, err)
	if r.TotalCost != 3 {
		t.Errorf("TotalCost = %v", r.TotalCost)
	}
	if n := len(r.ByChild); n < 3 || n > maxReportDepth+3 { // c, fifo, and d of each level
		t.Errorf("%d children", n)
	}
	if text := ReportText(r); strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
	must(t, os.Symlink(outside, filepath.Join(dir, "sidecar-results")))
	if again, err := ReadReport(openRoot(t, dir)); err != nil || again.TotalCost != 3 {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestReadReportWide(t *testing.T) {
	dir := t.TempDir()
	list := ""
	for i := range 6000 {
		list += fmt.Sprintf(`,{"name":"c%d","per_model_tokens":{"m":{"input":1}}}`, i)
	}
	must(t, os.WriteFile(dir+"/results.json", []byte(`{"children":[`+list[1:]+`]}`), 0o600))
	r, err := ReadReport(openRoot(t, dir))
	if err != nil || len(r.ByChild) != maxReportNodes-1 {
		t.Errorf("%d children, %v", len(r.ByChild), err)
	}
}

func FuzzReadReport(f *testing.F) {
	f.Add([]byte(`{"requestId":"a","ts":"2026-11-22T19:05:25Z","model":"sonnet","input":1,"output":2,"cache_creation":3,"cache_read":4}`),
		[]byte(`{"requestId":"a","attributionAgent":"b"}`), []byte(`{"dropped":{"parse_errors":1}}`), []byte(`{"children":[{"name":"c","per_model_tokens":{"opus":{"input":5}}}]}`))
	f.Fuzz(func(t *testing.T, usage, attribution, sums, results []byte) {
		dir := t.TempDir()
		for name, b := range map[string][]byte{"usage.jsonl": usage, "attribution.jsonl": attribution, "usage.json": sums, "results.json": results} {
			must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		}
		r, err := ReadReport(openRoot(t, dir))
		must(t, err)
		if r.TotalCost < 0 || r.CacheRead < 0 || r.CacheRead > 100 || r.Totals != sanitized(r.Totals) {
			t.Errorf("%+v", r)
		}
		if strings.Contains(ReportText(r), "\x1b") {
			t.Error("not safe for a terminal")
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}
