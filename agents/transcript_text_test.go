package agents

import (
	"strings"
	"testing"

	"demesne/runner"
)

// TestTranscriptText checks that stdout is the answer, and that only exit code 0 makes it a complete one.
func TestTranscriptText(t *testing.T) {
	long := strings.Repeat("é", runner.AnswerKept) // one line, longer than an answer
	for _, c := range []struct {
		name   string
		out    []string
		code   int
		final  string
		events string
	}{
		{"lines", []string{"The fi", "rst.\n\n  The second.\n"}, 0, "The first.\n\n  The second.", "The first.\nThe second.\n"},
		{"no end of line", []string{"yes"}, 0, "yes", "yes\n"},
		{"nothing", nil, 0, "", ""},
		{"failed", []string{"half an answer"}, 1, "half an answer", "half an answer\n"},
		{"JSON of another format", []string{`{"type":"result","subtype":"success","result":"x"}`}, 2, `{"type":"result","subtype":"success","result":"x"}`, ""},
		{"long line", []string{long + long}, 0, answerMarker + long[:runner.AnswerKept], ""},
		{"longest line", []string{strings.Repeat("a", longestLine+1), "b\nlast\n"}, 0, answerMarker + strings.Repeat("a", runner.AnswerKept-7) + "b\nlast", "last\n"},
	} {
		tr, events := newTranscript("text")
		for _, part := range c.out {
			tr.Write([]byte(part))
		}
		if tr.Ended() {
			t.Errorf("%s: ended before its end", c.name)
		}
		for range 2 {
			tr.Close()
			tr.Exited(c.code)
		}
		if tr.Final() != c.final || tr.Ended() != (c.code == 0) || tr.Fault() != "" || tr.Session() != "" {
			t.Errorf("%s: final %.60q, ended %t, want %.60q", c.name, tr.Final(), tr.Ended(), c.final)
		}
		if got := view(*events); c.events != "" && got != c.events {
			t.Errorf("%s: events %q", c.name, got)
		}
	}
	tr, _ := newTranscript("text")
	tr.Write([]byte("cut short by a rate limit"))
	tr.Exited(1)
	tr.Resume()
	tr.Write([]byte("whole"))
	if tr.Exited(0); tr.Final() != "whole" {
		t.Errorf("after a second execution: %q", tr.Final())
	}
	for _, format := range []string{"claude", "codex", "opencode", "gemini"} {
		tr, _ := newTranscript(format)
		if tr.Exited(0); tr.Ended() {
			t.Errorf("%s: exit code 0 without a result is a success", format)
		}
	}
}
