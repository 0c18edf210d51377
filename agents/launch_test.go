package agents

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// everyone are credentials for all rows.
var everyone = map[string]string{"OPENAI_API_KEY": "real", "ANTHROPIC_API_KEY": "real", "GEMINI_API_KEY": "real"}

// full uses each field of a Task.
var full = Task{
	Prompt: "Write a haiku.\nUse {model} words.", Preamble: "You are a poet.", OutputPath: "/out/haiku.txt", OutputFormat: "three lines",
	SuccessCriteria: []string{"It is about snow.", "It has 17 syllables."}, Inputs: []string{"a.txt", "b"}, Egress: "package-managers",
	Servers:  []Server{{Name: "demesne", Port: 8089, Path: "mcp"}, {Name: "anki", Port: 8090, Path: "/anki/mcp", Note: "flash cards"}},
	Children: true, Previous: true, Generated: true, Dir: `/workspace/.demesne/job "1"`, Token: "demesne-agent-0123456789abcdef0123456789abcdef",
}

func (l *Launch) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "argv %q\ndir %s\nhome %s\ncontext %s\nuser %v\n", l.Argv, l.Dir, l.HomeDir, l.Context, l.User)
	for _, e := range l.Env {
		fmt.Fprintln(&b, "env", e)
	}
	for _, r := range l.Routes {
		fmt.Fprintf(&b, "route %d to %s, token %s, usage %s, allow\n\t%s\n", r.Port, r.To, r.Token, r.Usage, strings.Join(r.Allow, "\n\t"))
	}
	for where, files := range map[string]map[string][]byte{"config": l.Config} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if name != l.Context {
				fmt.Fprintf(&b, "\n== %s %s\n%s", where, name, files[name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Home)) {
		fmt.Fprintf(&b, "\n== home %s\n%s", name, l.Home[name])
	}
	return b.String()
}

func TestLaunchGolden(t *testing.T) {
	c := open(t, host(t, everyone))
	for _, model := range []string{"gpt-5.6-sol", "sonnet", "opencode/gpt-5.5", "gemini-2.5-flash"} {
		a, err := c.Choose("x", model)
		if err != nil {
			t.Fatal(err)
		}
		name := a.Provider.Name
		l := a.Headless(full)
		golden(t, "launch/"+name+".headless", l.String())
		golden(t, "launch/"+name+".context", string(l.Config[l.Context]))
		argv, err := a.Resume(full, "0b5e")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "launch/"+name+".resume", fmt.Sprintf("%q\n", argv))
		if l, err = a.Interactive(Task{Dir: "/home/u/project", Token: full.Token}, Call{Args: []string{"--continue", "{model}"}}, "/home/u"); err != nil {
			t.Fatal(err)
		}
		golden(t, "launch/"+name+".interactive", l.String())
	}
}

func TestContextGolden(t *testing.T) {
	p := claudeCode()
	golden(t, "context/plain", string(p.context(Task{Prompt: "Do it."})))
	golden(t, "context/project", string(p.context(Task{Prompt: "Mend it.", Project: true})))
	golden(t, "context/research", string(p.context(Task{Prompt: "Find it.", Research: true, OutputFormat: "JSON"})))
}

// TestContextSections checks the order that skills rely on.
func TestContextSections(t *testing.T) {
	p := codex()
	text, at := string(p.context(full)), 0
	for _, section := range []string{"You are a poet.", "## Environment", "## Engineering changes", "## Available host tools",
		"/workspace/generated", "## Orchestrating child agents", "## Definition of done", "## Task"} {
		i := strings.Index(text[at:], section)
		if i < 0 {
			t.Fatalf("no %q after the section before it in\n%s", section, text)
		}
		at += i
	}
}

func TestPrompts(t *testing.T) {
	a, err := open(t, host(t, everyone)).Choose("x", "sonnet")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", longestPrompt+1)
	for prompt, want := range map[string]string{"-v": " -v", "{token}": "{token}",
		long: `Do the task in the section "Task" of the file /in/.agent/CLAUDE.md.`} {
		l := a.Headless(Task{Prompt: prompt})
		if at := slices.Index(l.Argv, "-p") + 1; l.Argv[at] != want {
			t.Errorf("%.20q: %.40q", prompt, l.Argv)
		}
		if !strings.HasSuffix(string(l.Config["CLAUDE.md"]), "## Task\n\n"+prompt+"\n") {
			t.Errorf("%.20q is not in the context file", prompt)
		}
	}
	for _, session := range []string{"", "--help"} {
		if _, err := a.Resume(Task{}, session); err == nil {
			t.Errorf("session %q was accepted", session)
		}
	}
}

func TestNewToken(t *testing.T) {
	a, b := NewToken(), NewToken()
	if a == b || len(a) != len("demesne-agent-")+64 {
		t.Errorf("%s, %s", a, b)
	}
}

// TestNoSecret checks that no part of a Launch has the credential.
func TestNoSecret(t *testing.T) {
	const secret = "sk-very-real"
	c := open(t, host(t, map[string]string{"OPENAI_API_KEY": secret, "ANTHROPIC_API_KEY": secret, "GEMINI_API_KEY": secret}))
	for _, p := range table() {
		a, err := c.Choose("x", p.Models[0])
		if err != nil {
			t.Fatal(err)
		}
		l := a.Headless(full)
		if text := fmt.Sprintf("%+v %s", l, l); strings.Contains(text, secret) {
			t.Errorf("%s: the plan has the credential", p.Name)
		}
	}
}

// TestLaunchClosed checks that the route of an agent is closed unless its own network is open.
func TestLaunchClosed(t *testing.T) {
	for _, p := range append(table(), Provider{API: API{Usage: "chat", Unchecked: true}}) {
		a := &Agent{Provider: p, program: program{}}
		for _, c := range []struct {
			task Task
			open bool
		}{
			{Task{}, false}, {Task{Egress: "none"}, false}, {Task{Egress: "package-managers"}, false}, {Task{Egress: "OPEN"}, false},
			{Task{Egress: "open"}, true}, {Task{Research: true}, true},
		} {
			l, err := a.Interactive(c.task, Call{}, HomeDir)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.Routes[0].Closed; got == (c.open || p.API.Unchecked) {
				t.Errorf("%s: %+v: closed %t", p.Name, c.task, got)
			}
			if got := a.Headless(c.task).Routes[0].Closed; got == (c.open || p.API.Unchecked) {
				t.Errorf("%s without a terminal: %+v: closed %t", p.Name, c.task, got)
			}
		}
	}
}

// TestPlaces checks that paths of a sandbox are replaced where they are whole, and nothing else is.
func TestPlaces(t *testing.T) {
	p := &Places{In: "$IN", Out: "/o", Workspace: "/w", Home: "/h", Config: "/c", Previous: "/p"}
	for text, want := range map[string]string{
		"/in": "$IN", "`/in/previous-jobs/NAME`, `/in/x`": "`/p/NAME`, `$IN/x`", "--config=/in/.agent/x.json": "--config=/c/x.json",
		`["/in","/out","/workspace"]`: `["$IN","/o","/w"]`, "/home/agent/.codex": "/h/.codex", "/home/agents /inner /output": "/home/agents /inner /output",
		"http://127.0.0.1:80/in /usr/out ./in": "http://127.0.0.1:80/in /usr/out ./in",
	} {
		if got := p.At(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := (*Places)(nil).At("/in"); got != "/in" {
		t.Errorf("without places: %s", got)
	}
}
