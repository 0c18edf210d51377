package agents

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// host makes Options of a host with these variables, in a home of its own.
func host(t *testing.T, env map[string]string) Options {
	t.Helper()
	return Options{Env: func(k string) string { return env[k] }, Home: t.TempDir()}
}

// open returns the catalog for an image, so that the host needs no installation.
func open(t *testing.T, o Options) *Catalog {
	t.Helper()
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return c.In("local/agents")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

var (
	codexModels  = []string{"gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.4-mini"}
	claudeModels = []string{"sonnet", "opus", "fable", "haiku"}
)

func TestModels(t *testing.T) {
	const login = `{"tokens":{"access_token":"a","refresh_token":"r","account_id":"x"}}`
	for _, c := range []struct {
		name  string
		env   map[string]string
		login bool
		want  []string
	}{
		{"nothing", nil, false, nil},
		{"a setup token", map[string]string{"DEMESNE_CLAUDE_CODE_OAUTH_TOKEN": "x"}, false, claudeModels},
		{"codex first", map[string]string{"ANTHROPIC_API_KEY": "x"}, true, slices.Concat(codexModels, claudeModels)},
		{"codex disabled", map[string]string{"ANTHROPIC_API_KEY": "x", "DEMESNE_CODEX_ENABLED": "F"}, true, claudeModels},
		{"all", map[string]string{"OPENAI_API_KEY": "x", "GEMINI_API_KEY": "x"}, false,
			slices.Concat(codexModels, []string{"opencode/gpt-5.5", "opencode/gpt-5.4-mini", "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite",
				"qwen/qwen3-coder-plus", "qwen/qwen3-coder-flash", "copilot/gpt-5.5", "copilot/gpt-5.4-mini", "pi/gpt-5.5", "pi/gpt-5.4-mini"})},
	} {
		o := host(t, c.env)
		if c.login {
			write(t, o.Home+"/.codex/auth.json", login)
		}
		if got := open(t, o).Models(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	both := map[string]string{"OPENAI_API_KEY": "x", "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN": "x"}
	off := map[string]string{"DEMESNE_CODEX_ENABLED": "0", "DEMESNE_CLAUDE_CODE_ENABLED": "false"}
	for _, c := range []struct {
		env             map[string]string
		model           string
		provider, inner string
		err             string
	}{
		{both, "", "codex", "gpt-5.6-sol", ""},
		{both, "haiku", "claude-code", "haiku", ""},
		{both, "opencode/any/model", "opencode", "any/model", ""},
		{map[string]string{"ANTHROPIC_AUTH_TOKEN": "x"}, "", "claude-code", "sonnet", ""},
		{both, "zzz", "", "", `model "zzz" unknown model (known: copilot/gpt-5.4-mini, copilot/gpt-5.5, fable, gemini-2.5-flash, gemini-2.5-flash-lite, gemini-2.5-pro, gpt-5.4-mini, ` +
			`gpt-5.5, gpt-5.6-luna, gpt-5.6-sol, gpt-5.6-terra, haiku, opencode/gpt-5.4-mini, opencode/gpt-5.5, opus, pi/gpt-5.4-mini, pi/gpt-5.5, qwen/qwen3-coder-flash, qwen/qwen3-coder-plus, sonnet)`},
		{off, "opus", "", "", `model "opus" is unavailable because agent provider "claude-code" is disabled`},
		{off, "", "", "", "no agent providers are enabled; enable DEMESNE_CODEX_ENABLED or DEMESNE_CLAUDE_CODE_ENABLED"},
		{nil, "", "", "", "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN is required for sandbox_agent (run `claude setup-token` to obtain one)"},
		{nil, "sonnet", "", "", "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN is required for sandbox_agent (run `claude setup-token` to obtain one)"},
		{map[string]string{"DEMESNE_CODEX_AUTH_FILE": "/no/auth.json"}, "gpt-5.5", "", "",
			"cannot read /no/auth.json (run `codex login`): open /no/auth.json: no such file or directory"},
		{nil, "gemini-2.5-pro", "", "", "GEMINI_API_KEY is required for sandbox_agent when using a gemini model"},
	} {
		a, err := open(t, host(t, c.env)).Choose("sandbox_agent", c.model)
		switch {
		case err != nil && err.Error() != c.err:
			t.Errorf("%q: error %q, want %q", c.model, err, c.err)
		case err == nil && (c.err != "" || a.Provider.Name != c.provider || a.inner != c.inner):
			t.Errorf("%q: %s with %q, want %s with %q, error %q", c.model, a.Provider.Name, a.inner, c.provider, c.inner, c.err)
		}
	}
	c := open(t, Options{Env: func(string) string { return "" }, Home: "/nonexistent"})
	c.o.Home = "" // no home at all
	if _, err := c.Choose("sandbox_agent", "gpt-5.5"); err == nil ||
		err.Error() != "DEMESNE_CODEX_AUTH_FILE (default ~/.codex/auth.json) is required for sandbox_agent when using a codex model" {
		t.Errorf("without a home: %v", err)
	}
}

func TestFind(t *testing.T) {
	c := open(t, host(t, map[string]string{"ANTHROPIC_API_KEY": "x", "DEMESNE_GEMINI_CLI_ENABLED": "false"}))
	if a, err := c.Find("claude"); err != nil || a.Provider.Name != "claude-code" {
		t.Errorf("claude: %v", err)
	}
	for name, want := range map[string]string{
		"gemini": `agent "gemini" is disabled: agent provider "gemini-cli"`,
		"cursor": `unknown agent "cursor" (known: codex, claude, opencode, gemini, qwen, copilot, pi)`,
	} {
		if _, err := c.Find(name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestProgramMissing checks models whose credential this host has and whose program it lacks: without an image they are not
// offered, are not the default, and the error names the program.
func TestProgramMissing(t *testing.T) {
	bin := install(t, map[string]string{"claude": elf})
	env := map[string]string{"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "PATH": bin}
	c, err := Open(host(t, env))
	if err != nil {
		t.Fatal(err)
	}
	c = c.In(hostImage)
	if got := c.Models(); !slices.Equal(got, claudeModels) {
		t.Errorf("models %q", got)
	}
	if a, err := c.Choose("sandbox_agent", ""); err != nil || a.Model != "sonnet" {
		t.Errorf("the default is %v, %v", a, err)
	}
	const want = `agent "codex": the program is missing: find program "codex" in PATH: file does not exist`
	_, chosen := c.Choose("sandbox_agent", "gpt-5.5")
	_, found := c.Find("codex")
	env["PATH"] = "/nonexistent"
	_, standard := c.Choose("sandbox_agent", "")
	for _, err := range []error{chosen, found, standard} {
		if !errors.Is(err, ErrNoProgram) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if got := c.Models(); got != nil {
		t.Errorf("models without any program: %q", got)
	}
}

// TestProgramImage checks the image that has the program: the caller's, or else the row's if this host has no installation. An
// installed program gives the default model.
func TestProgramImage(t *testing.T) {
	bin := install(t, map[string]string{"claude": elf})
	env := map[string]string{"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x", "AIDER_KEY": "x", "PATH": bin}
	o := host(t, env)
	o.File = o.Home + "/rows.json"
	write(t, o.File, `{"agents":[`+strings.Replace(ownRow, `"format"`, `"program":{"image":"local/aider"},"format"`, 1)+`]}`)
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"claude": "", "codex": "demesne/codex", "aider": "local/aider"} {
		if a, err := c.Find(command); err != nil || a.Image() != want {
			t.Errorf("%s: image %v, %v, want %q", command, a, err, want)
		}
		if a, err := c.In("local/agents").Find(command); err != nil || a.Image() != "" || len(a.Headless(Task{}).Mounts) > 0 {
			t.Errorf("%s in an image: %v, %v", command, a, err)
		}
	}
	if _, err := c.Find("opencode"); !errors.Is(err, ErrNoProgram) {
		t.Errorf("a row without an image: %v", err)
	}
	for path, first := range map[string]string{bin: "sonnet", "/nonexistent": codexModels[0]} {
		env["PATH"] = path
		if a, err := c.Choose("sandbox_agent", ""); err != nil || a.Model != first || c.Models()[0] != first {
			t.Errorf("the default is %v, %v, models %q, want %s", a, err, c.Models(), first)
		}
	}
}

func TestEnableInvalid(t *testing.T) {
	for _, name := range []string{"DEMESNE_CODEX_ENABLED", "DEMESNE_CLAUDE_CODE_ENABLED"} {
		_, err := Open(host(t, map[string]string{name: "maybe"}))
		if want := name + ` must be a valid boolean: strconv.ParseBool: parsing "maybe": invalid syntax`; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestRetryVariables(t *testing.T) {
	a, err := open(t, host(t, map[string]string{"OPENAI_API_KEY": "x", "RETRY_MAX_ATTEMPTS": "2", "RETRY_BACKOFF_BASE_SECS": "7",
		"RETRY_MAX_TOTAL_WAIT_SECS": "many"})).Choose("x", "gpt-5.5")
	if err != nil {
		t.Fatal(err)
	}
	want := codex().Retry
	want.Attempts, want.Base = 2, 7e9
	if a.Provider.Retry != want {
		t.Errorf("%+v, want %+v", a.Provider.Retry, want)
	}
}

const ownRow = `{"name":"aider","command":"aider","models":["aider/x"],"prefix":"aider/","headless":["--message","{prompt}"],
"resume":["--continue","{session}"],"format":"text","context":"CONVENTIONS.txt","api":{"port":8083,"usage":"chat","allow":["POST /chat/completions"]},
"credentials":[{"env":"AIDER_KEY","base":"http://127.0.0.1:1/v1","header":"Authorization","scheme":"Bearer","inside":{"OPENAI_API_KEY":"{token}"}}]}`

func TestUserRow(t *testing.T) {
	o := host(t, map[string]string{"AIDER_KEY": "x"})
	write(t, o.Home+"/.config/demesne/agents.json", `{"agents":[`+ownRow+`]}`)
	c := open(t, o)
	if got := c.Models(); !slices.Equal(got, []string{"aider/x"}) {
		t.Errorf("models: %q", got)
	}
	a, err := c.Choose("x", "")
	if err != nil || a.Provider.Command != "aider" || a.inner != "x" {
		t.Errorf("default: %v, %v", a, err)
	}
}

// TestUserRowFilled checks what a row gets that names no port and no arguments at a terminal.
func TestUserRowFilled(t *testing.T) {
	o := host(t, map[string]string{"AIDER_KEY": "x"})
	write(t, o.Home+"/.config/demesne/agents.json", `{"agents":[`+strings.Replace(ownRow, `"port":8083,`, ``, 1)+`]}`)
	a, err := open(t, o).Choose("x", "")
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Interactive(Task{}, Call{Args: []string{"--yes", "{prompt}"}}, "/h")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(l.Argv, " "); !strings.HasSuffix(got, "aider --yes {prompt}") || l.Routes[0].Port != ownPort {
		t.Errorf("%q on port %d", got, l.Routes[0].Port)
	}
}

func TestUserRowInvalid(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"name":"aider"`, `"name":"Aider"`, `agent "Aider": name must be lowercase letters, digits and interior hyphens`},
		{`"name":"aider"`, `"name":"codex"`, `agent "codex": another agent has the name "codex" or the command "aider"`},
		{`["aider/x"]`, `["sonnet"]`, `agent "aider": model "sonnet" belongs to agent "claude-code"`},
		{`"{prompt}"`, `"x"`, `agent "aider": headless must contain {prompt}`},
		{`8083`, `8087`, `agent "aider": api.port must be from 8000 to 8088, without 8087`},
		{`"chat"`, `"talk"`, `agent "aider": api.usage "talk": not one of messages, responses, chat, generate`},
		{`POST /`, `PUT /`, `agent "aider": api.allow "PUT /chat/completions": not METHOD /path`},
		{`http://127`, `ftp://127`, `agent "aider": credentials[0].base "ftp://127.0.0.1:1/v1": not an http or https URL`},
		{`"env":"AIDER_KEY",`, ``, `agent "aider": credentials[0] needs either env or file`},
		{`"format"`, `"home":{"../x":""},"format"`, `agent "aider": home "../x": not a path below its directory`},
		{`"format":"text"`, `"format":"jsonl"`, `agent "aider": format "jsonl": not one of ` + strings.Join(formatNames(), ", ")},
		{`"format":"text"`, `"format":"Text"`, `agent "aider": format "Text": not one of ` + strings.Join(formatNames(), ", ")},
		{`"format":"text",`, ``, `agent "aider": format "": not one of ` + strings.Join(formatNames(), ", ")},
		{`"format"`, `"fromat"`, `json: unknown field "fromat"`},
	} {
		o := host(t, nil)
		o.File = filepath.Join(o.Home, "own.json")
		write(t, o.File, `{"agents":[`+strings.Replace(ownRow, c.from, c.to, 1)+`]}`)
		_, err := Open(o)
		if want := "read agents: " + o.File + ": " + c.want; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", c.to, err, want)
		}
	}
}

// TestTable checks the built-in rows by the rules for a user's.
func TestTable(t *testing.T) {
	rows := table()
	for i, p := range rows {
		if err := p.check(rows[:i]); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// TestCatalogSpeaker checks that the protocol's agents are found, and that only they are offered.
func TestCatalogSpeaker(t *testing.T) {
	c, err := Open(Options{Env: func(string) string { return "" }, Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Speaker("copilot"); err != nil || p.Command != "copilot" {
		t.Errorf("%v, %v", p, err)
	}
	for name, want := range map[string]string{"pi": "does not speak the Agent Client Protocol", "other": "(known: codex, claude, opencode, gemini, qwen, copilot)"} {
		if _, err := c.Speaker(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestScriptedLink starts a script by the name sh where that is a link to a program of another name, such as busybox.
func TestScriptedLink(t *testing.T) {
	dir := t.TempDir()
	err := os.WriteFile(dir+"/busybox", []byte("\x7fELF"), 0o755)
	if err == nil {
		err = os.Symlink("busybox", dir+"/sh")
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(host(t, map[string]string{"PATH": dir}))
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Scripted("echo")
	if err != nil || len(a.program.argv) != 1 || a.program.argv[0] != "/bin/sh" || len(a.program.mounts) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}
