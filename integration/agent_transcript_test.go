package integration

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"demesne/agents"
	"demesne/integration/fixture"
)

// agentProgram is a program that the host runs without a sandbox, to see what it prints.
type agentProgram struct {
	format string
	argv   []string
	env    []string          // @MODEL is the URL of the model
	home   map[string]string // files, in the same way
	waits  bool              // for the end of a rate limit, without a word
}

var agentProgramsOnHost = []agentProgram{
	{
		format: "claude",
		argv:   []string{"claude", "-p", "make the file", "--model", "sonnet", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"},
		env: []string{"ANTHROPIC_BASE_URL=@MODEL", "ANTHROPIC_API_KEY=key-of-a-test-0000000000", "IS_SANDBOX=1",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_MAX_RETRIES=1"},
	},
	{
		format: "codex",
		argv: []string{"codex", "-c", "analytics.enabled=false", "--disable", "plugins", "exec", "--json", "-s", "danger-full-access",
			"--skip-git-repo-check", "-m", "gpt-5.5", "make the file"},
		env: []string{"KEY=key"},
		home: map[string]string{".codex/config.toml": `model_provider = "test"
[model_providers.test]
name = "test"
base_url = "@MODEL/v1"
wire_api = "responses"
env_key = "KEY"
request_max_retries = 1
stream_max_retries = 1
supports_websockets = false
`},
	},
	{
		format: "opencode",
		argv:   []string{"opencode", "run", "--format", "json", "-m", "test/scripted", "make the file"},
		env:    []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1"},
		home: map[string]string{".config/opencode/opencode.json": `{"autoupdate":false,"share":"disabled","provider":{"test":{
"npm":"@ai-sdk/openai-compatible","name":"test","options":{"baseURL":"@MODEL/v1","apiKey":"key"},"models":{"scripted":{"name":"scripted"}}}}}`},
		waits: true,
	},
	{
		format: "gemini",
		argv:   []string{"gemini", "-p", "make the file", "-m", "gemini-2.5-pro", "--output-format", "stream-json", "--yolo", "--skip-trust"},
		env:    []string{"GEMINI_API_KEY=key", "GOOGLE_GEMINI_BASE_URL=@MODEL", "GEMINI_TELEMETRY_ENABLED=false"},
		home:   map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}`},
		waits:  true,
	},
}

// TestAgentTranscripts reads what the real programs print: a run of two turns, and one that a rate limit ends.
func TestAgentTranscripts(t *testing.T) {
	for _, p := range agentProgramsOnHost {
		t.Run(p.format, func(t *testing.T) {
			program, err := exec.LookPath(p.argv[0])
			if err != nil {
				t.Skipf("needs %s in PATH", p.argv[0])
			}
			p.argv[0] = program
			t.Run("two turns", func(t *testing.T) { testTranscriptTurns(t, p) })
			if !p.waits {
				t.Run("rate limit", func(t *testing.T) { testTranscriptLimit(t, p) })
			}
		})
	}
}

func testTranscriptTurns(t *testing.T, p agentProgram) {
	var view []string
	tr := agents.NewTranscript(p.format, func(e agents.Event) { view = append(view, e.Text) })
	dir := p.run(t, tr, fixture.Steps(
		fixture.Answer{Text: "I make the file.", Calls: []fixture.ToolCall{{Run: "echo hello > made; echo it is made"}}},
		fixture.Answer{Text: "All done."},
	))
	if made, _ := os.ReadFile(filepath.Join(dir, "made")); string(made) != "hello\n" {
		t.Errorf("made %q", made)
	}
	_, limited := tr.Limited()
	if !tr.Ended() || tr.Final() != "All done." || tr.Fault() != "" || limited || tr.Session() == "" {
		t.Errorf("ended %v, final %q, fault %q, limited %v, session %q", tr.Ended(), tr.Final(), tr.Fault(), limited, tr.Session())
	}
	shown := strings.Join(view, "\n")
	for _, want := range []string{"I make the file.", "echo hello > made", "it is made", "All done."} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
}

func testTranscriptLimit(t *testing.T, p agentProgram) {
	tr := agents.NewTranscript(p.format, nil)
	p.run(t, tr, func(fixture.ModelRequest) fixture.Answer {
		return fixture.Answer{Status: http.StatusTooManyRequests, Header: http.Header{"X-Should-Retry": {"false"}}}
	})
	if _, limited := tr.Limited(); !limited || tr.Fault() == "" || tr.Final() != "" {
		t.Errorf("limited %v, fault %q, final %q", limited, tr.Fault(), tr.Final())
	}
}

// run runs the program against a model that follows script, with a home of its own, and returns its directory. No other
// server can be reached through its proxy variables.
func (p agentProgram) run(t *testing.T, tr *agents.Transcript, script func(fixture.ModelRequest) fixture.Answer) string {
	t.Helper()
	url, stop := (&fixture.Model{Script: script}).Start()
	defer stop()
	home, dir := t.TempDir(), t.TempDir()
	for name, text := range p.home {
		at := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(strings.ReplaceAll(text, "@MODEL", url)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = dir, tr, &said, time.Second
	c.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC", "NO_PROXY=127.0.0.1", "HTTPS_PROXY=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9"}
	for _, v := range p.env {
		c.Env = append(c.Env, strings.ReplaceAll(v, "@MODEL", url))
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a program may start itself again
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	err := c.Run()
	tr.Close()
	if (err == nil) != (tr.Fault() == "" && tr.Ended()) {
		t.Errorf("exit: %v; fault %q, ended %v; stderr:\n%s", err, tr.Fault(), tr.Ended(), said.String())
	}
	return dir
}
