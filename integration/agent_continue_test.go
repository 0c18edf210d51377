package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// talker answers each user message once: what it says has all that it was told. "Make N." writes a file first.
func talker(r fixture.ModelRequest) fixture.Answer {
	told := strings.Fields(r.Prompt)
	last := told[len(told)-1]
	if name, ok := strings.CutPrefix(last, "make:"); ok && len(r.Results) == strings.Count(r.Prompt, "make:")-1 {
		return shell("ls /out /workspace /in; echo " + name + " > /out/" + name + "; cp /out/" + name + " /workspace/" + name)
	}
	return fixture.Answer{Text: "Heard: " + strings.Join(told, " ")}
}

// conversationOf returns the name that a run printed for its follow-ups.
func conversationOf(t *testing.T, r result) string {
	t.Helper()
	found := regexp.MustCompile(`to continue: demesne agent run --continue (\S+) PROMPT`).FindStringSubmatch(r.stderr)
	if found == nil {
		t.Fatalf("no follow-up is named: %+v", r)
	}
	return found[1]
}

// TestAgentFollowUp checks that follow-ups resume the session of a run, with its home, workspace, outputs, inputs and bounds, by
// the name of a run and by the id of a job, one at a time.
func TestAgentFollowUp(t *testing.T) {
	b, m := newAgentBox(t, talker)
	b.keepsJobs()
	talk := func(args ...string) result {
		b.Helper()
		return b.demesne(append([]string{"agent", "run"}, args...)...)
	}
	one := talk("make:one", "--in", b.file("data.txt", "data", 0o644), "--max-turns", "9")
	if one.code != 0 || one.stdout != "Heard: make:one\n" {
		t.Fatalf("%+v", one)
	}
	name := conversationOf(t, one)
	two := talk("--continue", name, "make:two", "--in", b.file("more.txt", "more", 0o644))
	if two.code != 0 || two.stdout != "Heard: make:one make:two\n" || conversationOf(t, two) != name {
		t.Fatalf("%+v", two)
	}
	var seen string
	for _, r := range m.Log() {
		seen += strings.Join(r.Results, "\n")
	}
	if !regexp.MustCompile(`(?s)/in:\ndata.txt\nmore.txt\n.*/out:\n.*one\n.*/workspace:\none\n`).MatchString(seen) {
		t.Errorf("the follow-up saw %s", seen)
	}
	for _, at := range []string{"out/one", "out/two", "workspace/two", "home/session.json"} {
		if _, err := os.Stat(filepath.Join(b.out, name, at)); err != nil {
			t.Error(err)
		}
	}
	id := strings.TrimSpace(talk("--background", "--continue", name, "three").stdout)
	if r := b.demesne("logs", "-f", id); r.stdout != "Heard: make:one make:two three\n" {
		t.Errorf("%+v", r)
	}
	if r := talk("--continue", id, "four", "--max-turns", "1"); r.stdout != "Heard: make:one make:two three four\n" {
		t.Errorf("by the id of a job: %+v", r)
	}
	if r := talk("--continue", name, "make:five"); r.code != 137 || !strings.Contains(r.stderr, "budget") {
		t.Errorf("the last bound does not hold: %+v", r)
	}
	for _, c := range []struct {
		says string
		args []string
	}{
		{`"20260101-000000-00000000": no agent ran there`, []string{"--continue", "20260101-000000-00000000"}},
		{`"../x": job not found`, []string{"--continue", "../x"}},
		{"its conversation has the rest", []string{"--continue", name, "--egress", "package-managers"}},
		{"its conversation has the rest", []string{"--continue", name, "--model", "fake/other"}},
		{"cannot be combined", []string{"--continue", name, "--out", b.mkdir("o")}},
	} {
		if r := talk(append(c.args, "x")...); r.code != 125 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%v: %+v", c.args, r)
		}
	}
}

// TestAgentFollowUpKept checks that retention keeps the first run of a conversation while a follow-up runs, with an /out of the
// user too, and removes other runs. What a follow-up leaves of age says TestLockHome.
func TestAgentFollowUpKept(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.HasSuffix(strings.TrimSpace(r.Prompt), "wait") {
			return shell("sleep 1000")
		}
		return fixture.Answer{Text: "Answer."}
	})
	b.keepsJobs()
	run := func(args ...string) string {
		b.Helper()
		return strings.TrimSpace(b.demesne(append([]string{"agent", "run", "--background"}, args...)...).stdout)
	}
	first, other := run("x", "--out", b.mkdir("mine")), run("y")
	b.demesne("wait", first, other)
	next := run("--continue", first, "wait")
	eventually(t, "the follow-up runs", func() bool { return len(m.Log()) == 3 })
	if r := b.demesne("gc", "--outputs", "--older-than", "1ns"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for _, id := range []string{first, other} {
		digits := strings.TrimPrefix(id, "job-")[:8]
		lost := b.demesne("logs", id).code != 0
		dirs, _ := filepath.Glob(b.out + "/*-" + digits)
		if kept := id == first; kept != (len(dirs) == 1) || kept == lost {
			t.Errorf("after retention %s has %q", id, dirs)
		}
	}
	b.demesne("cancel", next)
	if r := b.demesne("agent", "run", "--continue", first, "z"); r.stdout != "Answer.\n" {
		t.Errorf("after retention: %+v", r)
	}
}

// TestAgentFollowUpBudget checks that bounds of tokens and cost hold for a conversation with all its runs.
func TestAgentFollowUpBudget(t *testing.T) {
	b, m := newAgentBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Answer."} })
	name := conversationOf(t, b.demesne("agent", "run", "x", "--max-cost", "1"))
	var used struct {
		Cost   float64
		Tokens int
	}
	text, err := os.ReadFile(filepath.Join(b.out, name, "sidecar-results/conversation.json"))
	if err := errors.Join(err, json.Unmarshal(text, &used)); err != nil || used.Tokens == 0 || used.Cost == 0 {
		t.Fatalf("%s: %v", text, err)
	}
	for _, c := range []struct {
		code, requests int
		says           string
		args           []string
	}{
		{125, 1, "budget: tokens: the conversation has used", []string{"--max-tokens", fmt.Sprint(used.Tokens)}},
		{125, 1, "budget: cost: the conversation has used", []string{"--max-cost", fmt.Sprint(used.Cost)}},
		{137, 2, "budget: tokens: ", []string{"--max-tokens", fmt.Sprint(used.Tokens + 1)}},
		{0, 3, "to continue", []string{"--max-tokens", fmt.Sprint(used.Tokens * 9)}},
		{0, 4, "to continue", nil},
	} {
		r := b.demesne(append([]string{"agent", "run", "--continue", name, "y"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.says) || len(m.Log()) != c.requests {
			t.Errorf("%q: %d requests, %+v", c.args, len(m.Log()), r)
		}
	}
}

// TestAgentFollowUpRefused checks programs that cannot resume, whose home is removed, and a conversation that has a run.
func TestAgentFollowUpRefused(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.HasSuffix(strings.TrimSpace(r.Prompt), "wait") {
			return shell("sleep 1000")
		}
		return fixture.Answer{Text: "Answer."}
	})
	b.keepsJobs()
	script := b.agentTree("--script", "echo done", "x")
	name := filepath.Base(script.dir)
	if r := b.demesne("agent", "run", "--continue", name, "y"); r.code != 125 || !strings.Contains(r.stderr, `agent "scripted" left no session that a follow-up can resume`) {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(script.dir + "/home"); !os.IsNotExist(err) || strings.Contains(script.stderr, "to continue") {
		t.Errorf("the home of a run without a session stays: %v %s", err, script.stderr)
	}
	name = conversationOf(t, b.demesne("agent", "run", "x"))
	id := strings.TrimSpace(b.demesne("agent", "run", "--background", "--continue", name, "wait").stdout)
	eventually(t, "the follow-up runs", func() bool { return len(m.Log()) == 2 })
	for at, says := range map[string]string{name: "another run of it has not ended", id: "it has not ended"} {
		if r := b.demesne("agent", "run", "--continue", at, "y"); r.code != 125 || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v", at, r)
		}
	}
	b.demesne("cancel", id)
	if r := b.demesne("agent", "run", "--continue", id, "y"); r.code != 0 || r.stdout != "Answer.\n" {
		t.Errorf("after the end: %+v", r)
	}
}

// TestAgentFollowUpPrograms checks that the real programs resume a session in another sandbox, with a new prompt, and that their
// models see an image of each message.
func TestAgentFollowUpPrograms(t *testing.T) {
	for _, model := range []string{"gpt-5.5", "sonnet", "pi/scripted"} {
		t.Run(strings.ReplaceAll(model, "/", "-"), func(t *testing.T) {
			b, m, _ := newProgramBox(t, func(fixture.ModelRequest) fixture.Answer { return fixture.Answer{Text: "Answer."} })
			talk := func(image string, args ...string) (r result, sent string) {
				t.Helper()
				before := len(m.Log())
				r = b.demesne(append([]string{"agent", "run", "--in", b.file(image, onePixel, 0o644)}, args...)...)
				if r.code != 0 || r.stdout != "Answer.\n" {
					t.Fatalf("%+v", r)
				}
				for _, one := range m.Log()[before:] {
					sent += string(one.Body)
				}
				return r, sent
			}
			const image = "iVBORw0KGgo" // the start of a PNG in base64
			one, sent := talk("first.png", "--model", model, "The fruit is a quince.")
			if strings.Count(sent, image) != 1 {
				t.Error("the model does not see the image")
			}
			_, sent = talk("second.png", "--continue", conversationOf(t, one), "And the tree?")
			if !strings.Contains(sent, "a quince.") || !strings.Contains(sent, "And the tree?") || strings.Count(sent, image) != 2 {
				t.Errorf("the follow-up has %d images in %.3000s", strings.Count(sent, image), sent)
			}
		})
	}
}
