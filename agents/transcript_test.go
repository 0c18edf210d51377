package agents

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"demesne/runner"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// lab is the time at which the transcripts of testdata were recorded.
var lab = time.Date(2026, 11, 22, 19, 5, 25, 0, time.UTC)

// newTranscript returns a Transcript with the clock of lab, and the events that it will have shown.
func newTranscript(format string) (*Transcript, *[]Event) {
	var events []Event
	t := NewTranscript(format, func(e Event) { events = append(events, e) })
	t.now = func() time.Time { return lab }
	return t, &events
}

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := string(testdata(t, name)); got != want {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// TestTranscriptReal reads transcripts that the real programs wrote against scripted servers.
func TestTranscriptReal(t *testing.T) {
	const done = "All done, the file is written."
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		newYork = time.FixedZone("EST", -5*3600)
	}
	for _, c := range []struct {
		name, final string
		ended       bool
		fault       string // a part of it
		limited     bool
		reset       time.Time
	}{
		{name: "claude", final: done, ended: true},
		{name: "claude-subagent", final: done, ended: true},
		{name: "claude-429", ended: true, fault: "Request rejected (429)", limited: true},
		{name: "claude-529", ended: true, fault: "529 Overloaded", limited: true},
		{name: "claude-limit", ended: true, fault: "session limit", limited: true, reset: time.Date(2026, 11, 25, 19, 6, 0, 0, time.UTC)},
		{name: "claude-cut", final: "I write the file."},
		{name: "codex", final: done, ended: true},
		{name: "codex-limit", ended: true, fault: "usage limit", limited: true, reset: time.Date(2026, 11, 22, 20, 6, 0, 0, time.UTC)},
		{name: "codex-limit-days", ended: true, fault: "usage limit", limited: true, reset: time.Date(2026, 11, 25, 19, 6, 0, 0, time.UTC)},
		{name: "codex-429", ended: true, fault: "rate limit exceeded", limited: true, reset: lab.Add(10172 * time.Millisecond)},
		{name: "codex-quota", ended: true, fault: "Quota exceeded"},
		{name: "codex-overloaded", ended: true, fault: "at capacity", limited: true},
		{name: "opencode", final: done, ended: true},
		{name: "opencode-401", ended: true, fault: "bad key"},
		{name: "gemini", final: done, ended: true},
		{name: "gemini-429", ended: true, fault: "retry after 3600s", limited: true, reset: lab.Add(time.Hour)},
	} {
		t.Run(c.name, func(t *testing.T) {
			format, _, _ := strings.Cut(c.name, "-")
			tr, events := newTranscript(format)
			tr.Zone = newYork
			tr.Write(testdata(t, c.name+".jsonl"))
			if tr.Session() == "" {
				t.Error("no session id")
			}
			if got := tr.Final(); got != c.final {
				t.Errorf("Final = %q, want %q", got, c.final)
			}
			if got := tr.Ended(); got != c.ended {
				t.Errorf("Ended = %v", got)
			}
			if got := tr.Fault(); (got == "") != (c.fault == "") || !strings.Contains(got, c.fault) {
				t.Errorf("Fault = %q, want %q", got, c.fault)
			}
			reset, limited := tr.Limited()
			if limited != c.limited || !around(reset, c.reset) {
				t.Errorf("Limited = %v, %v, want %v, %v", reset, limited, c.reset, c.limited)
			}
			golden(t, c.name+".view", view(*events))
		})
	}
}

// around allows for a program's own clock, which was not lab's.
func around(got, want time.Time) bool {
	return got.IsZero() == want.IsZero() && got.Sub(want).Abs() <= 2*time.Minute
}

func view(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		if line := e.Line(); line != "" {
			fmt.Fprintln(&b, line)
		}
	}
	return b.String()
}

// TestTranscriptPieces checks that events do not depend on how the output is cut into writes.
func TestTranscriptPieces(t *testing.T) {
	all := testdata(t, "claude-subagent.jsonl")
	whole, want := newTranscript("claude")
	whole.Write(all)
	for _, size := range []int{1, 7, 1000} {
		tr, got := newTranscript("claude")
		for rest := all; len(rest) > 0; {
			n := min(size, len(rest))
			tr.Write(rest[:n])
			rest = rest[n:]
		}
		if !reflect.DeepEqual(*got, *want) {
			t.Errorf("pieces of %d bytes: got %d events, want %d", size, len(*got), len(*want))
		}
	}
}

func TestTranscriptHostile(t *testing.T) {
	long := strings.Repeat("a", longestLine+10)
	for name, in := range map[string]string{
		"empty": "\n\n\n", "text": "hello\n", "half": `{"type":"result"`, "number": "3\n", "list": "[1]\n", "null": "null\n",
		"deep":  strings.Repeat("[", 100_000) + "\n",
		"types": `{"type":"assistant","message":{"content":[{"type":3},{"type":"text","text":{}}]}}` + "\n" + `{"type":"assistant","message":5}` + "\n",
		"long":  `{"type":"result","subtype":"success","result":"` + long + `"}` + "\n",
	} {
		for format := range formats() {
			tr, _ := newTranscript(format)
			n, err := tr.Write([]byte(in))
			if format == formatText { // its answer is whatever the program wrote
				tr.result = tail{}
			}
			if n != len(in) || err != nil || tr.Ended() || tr.Final() != "" || len(tr.line) > longestLine {
				t.Errorf("%s, %s: Write = %d, %v; Ended = %v, Final = %.20q", format, name, n, err, tr.Ended(), tr.Final())
			}
		}
	}
}

// TestTranscriptAfterLongLine checks that a line that is too long hides no other line, and that its memory is freed.
func TestTranscriptAfterLongLine(t *testing.T) {
	tr, _ := newTranscript("claude")
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 65 {
		tr.Write(chunk)
		if cap(tr.line) > 3*longestLine {
			t.Fatalf("keeps %d bytes", cap(tr.line))
		}
	}
	fmt.Fprintf(tr, "\n%s\n", `{"type":"result","subtype":"success","result":"fine"}`)
	if !tr.Ended() || tr.Final() != "fine" {
		t.Errorf("Ended = %v, Final = %q", tr.Ended(), tr.Final())
	}
}

func TestTranscriptResume(t *testing.T) {
	tr, events := newTranscript("claude")
	tr.Write(testdata(t, "claude-limit.jsonl"))
	tr.Write([]byte(`{"type":"assist`)) // killed in a line
	session := tr.Session()
	tr.Resume()
	if _, limited := tr.Limited(); limited || tr.Ended() || tr.Session() != session {
		t.Errorf("after Resume: limited %v, ended %v, session %q", limited, tr.Ended(), tr.Session())
	}
	before := len(*events)
	tr.Write(testdata(t, "claude.jsonl"))
	if !tr.Ended() || tr.Fault() != "" || len(*events) == before {
		t.Errorf("ended %v, fault %q", tr.Ended(), tr.Fault())
	}
}

// TestTranscriptClose checks that a last line without a line feed counts after Close only.
func TestTranscriptClose(t *testing.T) {
	tr, _ := newTranscript("claude")
	tr.Write([]byte(`{"type":"result","subtype":"success","result":"fine"}`))
	if tr.Ended() {
		t.Error("ended within a line")
	}
	tr.Close()
	if !tr.Ended() {
		t.Error("not ended")
	}
}

func TestFinalIsBounded(t *testing.T) {
	tr, _ := newTranscript("codex")
	answer := strings.Repeat("ü", runner.AnswerKept) + "end"
	fmt.Fprintf(tr, `{"type":"item.completed","item":{"type":"agent_message","text":%q}}`+"\n", answer)
	rest, marked := strings.CutPrefix(tr.Final(), answerMarker)
	if !marked || !utf8.ValidString(rest) || len(rest) > runner.AnswerKept || len(rest) < runner.AnswerKept-3 || !strings.HasSuffix(rest, "üend") {
		t.Errorf("marked %v, %d bytes, valid %v", marked, len(rest), utf8.ValidString(rest))
	}
	var short tail
	short.WriteString(strings.Repeat("x", runner.AnswerKept))
	if got := short.String(); len(got) != runner.AnswerKept {
		t.Errorf("an answer of the limit has %d bytes", len(got))
	}
}

// TestCodexItems reads items that the recorded runs lack.
func TestCodexItems(t *testing.T) {
	tr, events := newTranscript("codex")
	fmt.Fprintln(tr, `{"type":"item.started","item":{"id":"1","type":"mcp_tool_call","server":"demesne","tool":"sandbox_exec","arguments":{"command":"ls"},"status":"in_progress"}}
{"type":"item.completed","item":{"id":"1","type":"mcp_tool_call","server":"demesne","tool":"sandbox_exec","status":"failed"}}
{"type":"item.completed","item":{"id":"2","type":"file_change","changes":[{"path":"/workspace/a","kind":"add"},{"path":"/workspace/b","kind":"delete"}],"status":"completed"}}
{"type":"item.completed","item":{"id":"3","type":"web_search","query":"weather"}}
{"type":"item.completed","item":{"id":"4","type":"todo_list","items":[{"text":"a","completed":false}]}}`)
	golden(t, "codex-items.view", view(*events))
}

func TestSessionID(t *testing.T) {
	for in, want := range map[string]string{
		"9e1be063-bcbb-47bb-8779-3747a20e91a1": "9e1be063-bcbb-47bb-8779-3747a20e91a1", "ses_dfb5c3b0fffenp1D3Tw7tya1Kr": "ses_dfb5c3b0fffenp1D3Tw7tya1Kr",
		"--option": "", "a b": "", "": "", "a\n": "", strings.Repeat("a", 200): "",
	} {
		if got := sessionID(in); got != want {
			t.Errorf("sessionID(%q) = %q", in, got)
		}
	}
}

func TestLineIsSafe(t *testing.T) {
	for _, e := range []Event{
		{Kind: eventText, Text: "a\x1b[2Jb\nc"}, {Kind: eventCall, Tool: "x\x1b", Text: "\r"}, {Kind: eventReturn, Text: "\x07", Failed: true},
		{Kind: eventLimit}, {Kind: eventError, Text: "\x9b"}, {Kind: eventResult, Failed: true, Text: "\x1b"},
		{Kind: eventSession, Session: "\x1b", Model: "\x1b"}, {Kind: eventText, Agent: "\x1b", Text: "t"},
	} {
		if line := e.Line(); strings.ContainsAny(line, "\x1b\n\r\x07\u202e") || strings.Contains(line, "\x9b") || line == "" {
			t.Errorf("%+v: %q", e, line)
		}
	}
}

func TestSummary(t *testing.T) {
	for in, want := range map[string]string{
		`{"command":"ls -l","description":"list"}`: "ls -l", `{"description":"list","file_path":"/a"}`: "/a", `{"command":["ls","-l"]}`: "ls -l",
		`{"x":1, "y":[2]}`: `{"x":1,"y":[2]}`, `{}`: "", `null`: "", ``: "", `"text"`: `"text"`, `{"command":"a\nb\u001b[0m"}`: "a b?[0m",
		`{"command":"` + strings.Repeat("ü", 200) + `"}`: strings.Repeat("ü", 100) + "…",
	} {
		if got := summary([]byte(in)); got != want {
			t.Errorf("summary(%s) = %q, want %q", in, got, want)
		}
	}
}

func FuzzTranscript(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.jsonl")
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		format, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(name), ".jsonl"), "-")
		f.Add(format, b)
	}
	f.Fuzz(func(t *testing.T, format string, b []byte) {
		tr, events := newTranscript(format)
		half := len(b) / 2
		tr.Write(b[:half])
		tr.Write(b[half:])
		tr.Close()
		whole, same := newTranscript(format)
		whole.Write(b)
		whole.Close()
		if !reflect.DeepEqual(*events, *same) {
			t.Error("events depend on the writes")
		}
		if final := tr.Final(); len(final) > runner.AnswerKept*3+len(answerMarker) || !utf8.ValidString(final) {
			t.Errorf("Final has %d bytes", len(final))
		}
		for _, e := range *events {
			if line := e.Line(); strings.ContainsAny(line, "\n\r\x1b") {
				t.Errorf("line %q", line)
			}
		}
		if reset, _ := tr.Limited(); !reset.IsZero() && reset.Sub(lab) > farthest {
			t.Errorf("reset %v", reset)
		}
	})
}
