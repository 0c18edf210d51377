package headless

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"demesne/agents"
	"demesne/agents/tree"
	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/session"
)

// story is what happened in one run.
func story() []tree.Notice {
	code := 137
	event := func(kind, text string) agents.Event { return agents.Event{Kind: kind, Text: text} }
	return []tree.Notice{
		{Event: event(tree.NoticeStarted, ""), Output: "/o/out"},
		{Event: event("text", "I look.\nThen I write.\n")},
		{Event: agents.Event{Kind: "tool_call", Tool: "Bash", Text: "ls \x1b[2J"}},
		{Event: event("tool_result", "fine")},
		{Event: agents.Event{Kind: "tool_result", Text: "no such file", Failed: true}},
		{Event: event("text", "one\ntwo"), Child: "a/b"},
		{Event: event(tree.NoticeUsage, ""), Total: 0.5, Turns: 1},
		{Event: event(tree.NoticeWaiting, "a rate limit"), Until: time.Date(2026, 1, 1, 12, 30, 0, 0, time.Local)},
		{Event: event(tree.NoticeEnded, "budget: turns: 4 of 3"), Total: 0.75, ExitCode: &code},
	}
}

// TestView checks the readable view: it shows no control character of an agent, and names the child of each line.
func TestView(t *testing.T) {
	var out, errs strings.Builder
	v := newView(&out, &errs, false, cmdline.Terminal{})
	v.raw = false
	for _, n := range story() {
		v.show(n)
	}
	v.answer(&agents.Result{RunResult: session.RunResult{Result: &runner.Result{}, Stdout: session.Tail{Text: "The \x07answer:\n\tindented.\n"}}})
	want := "output: /o/out\nI look.\nThen I write.\n→ Bash ls ?[2J\n  failed: no such file\na/b: one\na/b: two\n" +
		"$0.5000, 1 request\nwaiting until 12:30:00 for the end of a rate limit\nended: budget: turns: 4 of 3 ($0.7500)\n"
	if errs.String() != want || out.String() != "The ?answer:\n\tindented.\n" {
		t.Errorf("stdout %q, stderr\n%s\nwant\n%s", out.String(), errs.String(), want)
	}
}

// TestViewAnswer checks that an answer that the same terminal shows already is not repeated, and that another one is.
func TestViewAnswer(t *testing.T) {
	for _, c := range []struct {
		same   bool
		answer string
		want   string
	}{
		{true, "It is\ndone.\n", ""}, {false, "It is\ndone.\n", "It is\ndone.\n"}, {true, "another", "another\n"}, {true, "of a child", "of a child\n"},
	} {
		var out, errs strings.Builder
		v := newView(&out, &errs, false, cmdline.Terminal{})
		v.raw, v.same = false, c.same
		v.show(tree.Notice{Event: agents.Event{Kind: "text", Text: "It is\ndone.\n"}})
		v.show(tree.Notice{Event: agents.Event{Kind: "text", Text: "of a child"}, Child: "a"})
		v.answer(&agents.Result{RunResult: session.RunResult{Result: &runner.Result{}, Stdout: session.Tail{Text: c.answer}}})
		if out.String() != c.want {
			t.Errorf("%+v: stdout %q", c, out.String())
		}
	}
}

// TestViewJSON checks that each event is one line of JSON.
func TestViewJSON(t *testing.T) {
	var out, errs strings.Builder
	v := newView(&out, &errs, true, cmdline.Terminal{})
	for _, n := range story() {
		v.show(n)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(story()) || errs.Len() > 0 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	var last struct {
		Event string  `json:"event"`
		Text  string  `json:"text"`
		Code  int     `json:"exit_code"`
		Total float64 `json:"total_usage_usd"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Event != "ended" || last.Code != 137 || last.Total != 0.75 {
		t.Errorf("%+v, %v", last, err)
	}
}

// TestProgress checks the line that a caller of the MCP server sees.
func TestProgress(t *testing.T) {
	var got []string
	for _, n := range story() {
		if s := progress(n); s != "" {
			got = append(got, s)
		}
	}
	if len(got) != 8 || got[1] != "I look." || got[4] != "a/b: one" {
		t.Errorf("%q", got)
	}
}
