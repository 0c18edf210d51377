package integration

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// newProgramBox returns a box whose agents are the real programs, with a model that follows script, and a project with
// a git repository.
func newProgramBox(t *testing.T, script func(fixture.ModelRequest) fixture.Answer) (*box, *fixture.Model, string) {
	t.Helper()
	if _, err := os.Stat(strings.SplitN(programsPath(), ":", 2)[0]); err != nil {
		need(t, false, "integration/agents.sh")
	}
	b := newBox(t)
	m := &fixture.Model{Script: script}
	url, stop := m.Start()
	t.Cleanup(stop)
	b.extra = append(b.extra, "PATH="+programsPath(), "ANTHROPIC_BASE_URL="+url, "ANTHROPIC_API_KEY="+realKey,
		"OPENAI_BASE_URL="+url, "OPENAI_API_KEY="+realKey, "GOOGLE_GEMINI_BASE_URL="+url, "GEMINI_API_KEY="+realKey, "COLORTERM=truecolor", "TERM=xterm-256color")
	b.prepareHome()
	return b, m, b.repository("repo")
}

// agentTerminal starts an agent's program in a directory on a terminal.
func (b *box) agentTerminal(dir string, args ...string) *terminal {
	b.Helper()
	cmd := b.command("demesne", append([]string{"agent"}, args...)...)
	cmd.Dir = dir
	term := b.terminalOf(cmd)
	b.Cleanup(func() {
		if b.Failed() {
			shown := unstyled(term.screen())
			b.Logf("the terminal showed %q", shown[max(0, len(shown)-3000):])
		}
	})
	return term
}

// quiet waits until the terminal has shown something, and then nothing for a moment.
func (t *terminal) quiet() string {
	t.Helper()
	last, since := "", time.Now()
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if now := t.screen(); now != last {
			last, since = now, time.Now()
		} else if last != "" && time.Since(since) > 1500*time.Millisecond {
			return last
		}
	}
	return last
}

// TestAgentTerminal runs the real programs on a terminal: the first screen asks nothing, a prompt runs a command in the
// project, the screen follows a new size, and Ctrl-C ends the program. opencode clears the screen seconds before it reads
// input, and discards what was typed until then. So the test waits for a text of its prompt.
func TestAgentTerminal(t *testing.T) {
	for name, ready := range map[string]string{"claude": "", "codex": "", "gemini": "Type your message", "opencode": "Ask anything"} {
		t.Run(name, func(t *testing.T) { testAgentTerminal(t, name, ready) })
	}
}

func testAgentTerminal(t *testing.T, name, ready string) {
	b, m, repo := newProgramBox(t, fixture.Steps(
		fixture.Answer{Calls: []fixture.ToolCall{{Run: "echo made by $COLORTERM $TERM > made.txt; pwd >> made.txt; git add made.txt && git commit -q -m 'by the agent'"}}},
		fixture.Answer{Text: "zebra finished"}))
	memory := map[string]string{"claude": ".claude/CLAUDE.md", "codex": ".codex/AGENTS.md", "gemini": ".gemini/GEMINI.md", "opencode": ".config/opencode/AGENTS.md"}[name]
	b.file("h/"+memory, "The quokka is the user's memory.\n", 0o644)
	term := b.agentTerminal(repo, "--settings", "memory", name)
	term.resize(40, 110)
	term.expect(ready)
	term.quiet()
	if n := len(m.Log()); n > 1 {
		t.Logf("%d requests before the first prompt", n)
	}
	shown := len(term.screen())
	term.typ("\x1b[200~please make\rthe file\x1b[201~") // a bracketed paste: its newline sends nothing
	eventually(t, "the paste on the screen", func() bool { return len(term.screen()) > shown })
	if term.quiet(); asked(m, "please make") {
		t.Error("the paste was sent without Enter")
	}
	// gemini can take an Enter that it reads together with a paste for a part of the paste.
	for tries := 0; tries < 5 && !asked(m, "please make"); tries++ {
		term.typ("\r")
		term.quiet()
	}
	eventually(t, "the file", func() bool { _, err := os.Stat(repo + "/made.txt"); return err == nil })
	eventually(t, "the answer", func() bool { return strings.Contains(unstyled(term.screen()), "zebra") })
	if !slices.ContainsFunc(m.Log(), func(r fixture.ModelRequest) bool { return strings.Contains(string(r.Body), "The quokka") }) {
		t.Error("the program does not find the user's memory")
	}
	if made, _ := os.ReadFile(repo + "/made.txt"); string(made) != "made by truecolor xterm-256color\n"+repo+"\n" {
		t.Errorf("made %q", made)
	}
	if !asked(m, "please make", "the file") {
		t.Error("the paste did not arrive as one prompt")
	}
	term.quiet()
	before := len(term.screen())
	term.resize(30, 70)
	eventually(t, "the screen to be drawn again", func() bool { return len(term.screen()) > before })
	term.quiet()
	if code := term.leave("\x03"); code != 0 && code != 130 {
		t.Errorf("exit %d", code)
	}
	if got := b.host(repo, "git log -1 --format=%s"); got != "by the agent\n" {
		t.Errorf("the last commit is %q", got)
	}
	b.nowhere(b.home+"/.demesne", realKey)
	b.nowhere(repo, realKey)
	if strings.Contains(term.screen(), realKey) {
		t.Error("the terminal shows the key")
	}
}

// asked reports whether the model got a prompt with all parts.
func asked(m *fixture.Model, parts ...string) bool {
	return slices.ContainsFunc(m.Log(), func(r fixture.ModelRequest) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(r.Prompt, part) })
	})
}

// unstyled removes escape sequences.
func unstyled(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			out.WriteByte(s[i])
			continue
		}
		for i++; i < len(s) && !(s[i] >= '@' && s[i] <= '~' && s[i] != '['); i++ {
		}
	}
	return out.String()
}

// TestAgentPiped runs a program with its prompt as an argument and no terminal, and continues the session.
func TestAgentPiped(t *testing.T) {
	b, _, repo := newProgramBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(string(r.Body), "remember zebra") && strings.Contains(string(r.Body), "what was it") {
			return fixture.Answer{Text: "it was zebra"}
		}
		return fixture.Answer{Text: "remembered"}
	})
	for _, args := range [][]string{{"claude", "-p", "remember zebra"}, {"claude", "-p", "--continue", "what was it"}} {
		cmd := b.command("demesne", append([]string{"agent"}, args...)...)
		cmd.Dir = repo
		r := b.finish(cmd)
		want := "remembered\n"
		if len(args) > 3 {
			want = "it was zebra\n"
		}
		if r.code != 0 || r.stdout != want {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestAgentAsks answers questions about the network on the terminal that the agent's program has.
func TestAgentAsks(t *testing.T) {
	program(t, "curl")
	b, _, dir := newScriptBox(t)
	const question = "allow access to %s.test:80? [y/N]"
	script := func(names string) string {
		return `for n in ` + names + `; do curl -s -m 60 -o $n.txt http://$n.test/; echo "over $n"; done; read -r x; echo "got <$x>"`
	}
	free := func(term *terminal) {
		t.Helper()
		term.typ("free\r")
		term.expect("got <free>")
		if code := term.wait(); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	term := b.agentTerminal(dir, "--ask", "script-agent", script("one two"))
	for _, c := range []struct{ name, typed string }{{"one", "n\r"}, {"two", "y\r"}} {
		term.expect(strings.Replace(question, "%s", c.name, 1))
		time.Sleep(400 * time.Millisecond) // keys within 300 ms of a question are ignored
		term.typ(c.typed)
		term.expect("over " + c.name)
	}
	free(term)
	term = b.agentTerminal(dir, "--ask", "--ask-timeout", "1s", "script-agent", script("three"))
	term.expect(strings.Replace(question, "%s", "three", 1))
	term.expect("no answer in 1s: denied for now")
	term.expect("over three")
	free(term)
	one, _ := os.ReadFile(dir + "/one.txt")
	if two, _ := os.ReadFile(dir + "/two.txt"); strings.Contains(string(two), "not allowed") || string(two) == string(one) {
		t.Errorf("answers %q and %q", one, two)
	}
}

// TestAgentAskRedraws answers a question over a full-screen program: the question is visible and keeps the program's
// modes, a paste is not consent, and the program draws its screen again at its size.
func TestAgentAskRedraws(t *testing.T) {
	program(t, "curl")
	b, _, dir := newScriptBox(t)
	term := b.agentTerminal(dir, "--ask", "script-agent", `
trap 'printf "\033[2J\033[Hframe <%s>" "$(stty size)"' WINCH
printf '\033[?1049h\033[?2004h\033[?2026h\033[5;9rstart'
for n in one two; do curl -s -m 20 -o $n.txt http://$n.test/; echo "over $n"; until [ -e $n.seen ]; do sleep 0.1; done; done
read -r x; printf 'got <%s>' "$x"`)
	for _, c := range []struct{ name, typed string }{{"one", "n\r"}, {"two", "\x1b[200~y\r"}} {
		term.expect("allow access to " + c.name + ".test:80? [y/N]")
		time.Sleep(400 * time.Millisecond) // keys within 300 ms of a question are ignored
		asked := len(term.screen())
		term.typ(c.typed)
		eventually(t, "the screen to be drawn again", func() bool { return strings.Contains(term.screen()[asked:], "frame <24 80>") })
		term.expect("over " + c.name)
		if got, _ := os.ReadFile(dir + "/" + c.name + ".txt"); !strings.Contains(string(got), "denied by rule") {
			t.Errorf("%s: it was not denied: %q", c.name, got)
		}
		if err := os.WriteFile(dir+"/"+c.name+".seen", nil, 0o644); err != nil { // the next question may hide what follows this one
			t.Fatal(err)
		}
	}
	screen := term.screen()
	question := screen[strings.Index(screen, "start"):strings.Index(screen, "demesne: agent: allow")]
	for _, want := range []string{"\x1b[?2026l", "\x1b[r", "\x1b[0m"} {
		if !strings.Contains(question, want) {
			t.Errorf("no %q before the question: %q", want, question)
		}
	}
	for _, bad := range []string{"\x1b[?1049l", "\x1b[?2004l", "\x1b[!p", "\x1bc"} {
		if strings.Contains(screen, bad) {
			t.Errorf("a mode of the program was reset by %q: %q", bad, screen)
		}
	}
	term.typ("free\r")
	term.expect("got <free>")
	if code := term.wait(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
