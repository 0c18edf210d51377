package agents

import (
	"strings"
	"time"
)

// The ports of the sandbox's loopback, and the directory of the configuration there.
const (
	responsesPort = 8086
	messagesPort  = 8088
	chatPort      = 8085
	generatePort  = 8084
	goProxyPort   = 8087 // taken

	// ConfigDir is where the sandbox has the files of [Launch.Config], read-only.
	ConfigDir = "/in/.agent"
	// HomeDir is $HOME of a run without a terminal. It is writable and has the files of [Launch.Home].
	HomeDir = "/home/agent"
)

// table returns the built-in rows. The first row with a credential has the default model.
func table() []Provider {
	return []Provider{codex(), claudeCode(), openCode(), geminiCLI(), qwenCode(), copilotCLI(), piAgent()}
}

// codex is tried with 0.169. Facts:
//   - CODEX_HOME must be writable. Below /tmp it warns that it makes no aliases, and works.
//   - stdin must be /dev/null. Otherwise it waits for the rest of the prompt.
//   - gpt-5.6-* call tools from a script, in codex-code-mode-host beside the executable. Without that file the program
//     exits with 0 and did nothing.
//   - A refused base URL is tried for ever unless unbounded_connection_retries is disabled. Limits are the caller's to
//     wait for: request_max_retries is small. After a 429 it prints turn.failed and exits with 1, and
//     `exec resume THREAD` continues under the same thread id.
//   - It does not list the tools of MCP servers to the model, which must search for them. The context file says so.
//   - tool_timeout_sec = 0 is a timeout at once. An MCP server that does not answer is reported on stderr
//     only.
//   - Interactive: with `-p demesne` it reads demesne.config.toml after config.toml, and writes there what the user
//     chooses. So a kept home keeps that file, and config.toml is replaced.
//   - With features.daemon_auto_start and -p it warns at each start that it runs without a shared server.
//   - It asks only about what its own sandbox refuses. That sandbox is bwrap, which gets no namespaces here: with one, commands
//     fail until the model asks to run them without it, and then the user is asked.
//   - Interactive: it asks a host for announcements at its start, which no setting stops. With --ask that is the first
//     question; a refusal does no harm.
//   - It follows a link from AGENTS.md to another directory.
func codex() Provider {
	exec := []string{"exec", "--json", "-s", "danger-full-access", "--skip-git-repo-check", "-m", "{model}"}
	return Provider{
		Name: "codex", Command: "codex", Enable: "DEMESNE_CODEX_ENABLED", Format: "codex",
		Models: []string{"gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.4-mini"},
		Side:   []string{"gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna"},
		Arguments: Arguments{
			Headless:    append(exec, "{prompt}"),
			Resume:      append(exec[:len(exec):len(exec)], "resume", "{session}", "{prompt}"),
			Interactive: []string{"-p", "demesne", "{skip}", "{args}"},
			Continue:    []string{"resume", "--last"},
			Chdir:       words("--cd -C"),
			Commands: words("login logout mcp plugin completion update doctor sandbox debug apply a archive delete " +
				"migrate-rollouts migrate-nfs-db unarchive features help"),
			Serves: words("app-server exec-server mcp-server remote-control cloud"),
		},
		Image: Image{Argument: "--image={file}"},
		Prompts: Prompts{Skip: words("--dangerously-bypass-approvals-and-sandbox"), Ask: words("-a on-request -s workspace-write"),
			Chosen: words("-a* --ask-for-approval* -s* --sandbox* --approve-for-me --full-auto --yolo --dangerously-bypass-approvals-and-sandbox " +
				"approval_policy=* sandbox_mode=* -capproval_policy=* -csandbox_mode=* --config=approval_policy=* --config=sandbox_mode=*")},
		ACP: ACP{Command: "codex-acp", Variable: "CODEX_PATH", Env: map[string]string{"NO_BROWSER": "1", "INITIAL_AGENT_MODE": "agent-full-access"},
			Capabilities: capabilities("resume", "list", "close")},
		Env:     map[string]string{"CODEX_HOME": "{home}/.codex"},
		Context: "AGENTS.md",
		Project: []string{".codex/config.toml", ".codex/hooks.json", ".codex/rules/x.rules", ".agents/skills/x/SKILL.md"},
		Guidance: `## Engineering changes

Before you change code, read what surrounds it and follow its conventions. Make the smallest change that solves the
task. Run the tests that cover the change, and say in your answer which ones you ran and how they ended.
`,
		Config:   map[string]string{"config.toml": codexConfig},
		Home:     map[string]string{".codex/config.toml": codexConfig, ".codex/demesne.config.toml": ""},
		Keep:     []string{".codex/demesne.config.toml"},
		Settings: settings(".codex/skills .agents/skills", ".codex/prompts", ".codex/AGENTS.md"),
		Servers: Servers{Join: "\n", Entry: `[mcp_servers.{name}]
url = "{url}"
startup_timeout_sec = 60
tool_timeout_sec = 172800
default_tools_approval_mode = "approve"
`},
		Tools: Tools{File: "~/.codex/config.toml", Env: "DEMESNE_CODEX_MCP_CONFIG", Format: "toml"},
		API: API{Port: responsesPort, Usage: "responses", Allow: []string{"POST /responses", "GET /models"}, Query: []string{"client_version"},
			Headers: []string{"Openai-Beta", "Originator", "Version", "Session_id", "Session-Id", "Thread_id", "Thread-Id", "Conversation_id", "X-Client-Request-Id", "X-Codex-*", "X-Openai-Subagent",
				"X-Openai-Internal-Codex-*"},
			Hosted: Hosted{Open: "live", Closed: "disabled"}},
		Credentials: []Credential{
			{File: "~/.codex/auth.json", FileEnv: "DEMESNE_CODEX_AUTH_FILE", Kind: "codex", Base: "https://chatgpt.com/backend-api/codex",
				Header: "Authorization", Scheme: "Bearer", Inside: map[string]string{"OPENAI_API_KEY": "{token}"}},
			openAIKey(),
		},
		Missing: "DEMESNE_CODEX_AUTH_FILE (default ~/.codex/auth.json) is required for {tool} when using a codex model",
		Program: Program{Native: "@openai/codex-linux-{arch}/vendor/*/bin/codex", Beside: []string{"codex-code-mode-host", "../codex-path/rg"},
			Image: "demesne/codex"},
		Retry: retry(12, 21600*time.Second),
	}
}

// words splits a line of the table.
func words(line string) []string { return strings.Fields(line) }

// capabilities returns what the protocol calls agentCapabilities, for a program that loads sessions and takes images, with
// more methods of sessions.
func capabilities(session ...string) map[string]any {
	more := map[string]any{}
	for _, name := range session {
		more[name] = map[string]any{}
	}
	return map[string]any{"loadSession": true, "promptCapabilities": map[string]any{"image": true, "embeddedContext": true},
		"mcpCapabilities": map[string]any{"http": true}, "sessionCapabilities": more}
}

const openAIBase = "https://api.openai.com/v1"

func openAIKey() Credential {
	return Credential{Env: "OPENAI_API_KEY", Base: openAIBase, BaseEnv: "OPENAI_BASE_URL", Header: "Authorization", Scheme: "Bearer",
		Inside: map[string]string{"OPENAI_API_KEY": "{token}"}}
}

// codexConfig has no secret: env_key names the variable with the token.
const codexConfig = `model_provider = "demesne"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "{hosted}"

[analytics]
enabled = false

[features]
plugins = false
daemon_auto_start = false
unbounded_connection_retries = false

[notice]
hide_full_access_warning = true
hide_rate_limit_model_nudge = true

[tui]
screen_reader_detection_done = true

[model_providers.demesne]
name = "demesne"
base_url = "{url}"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
request_max_retries = 1
stream_max_retries = 2
supports_websockets = false

[projects."{dir}"]
trust_level = "trusted"

{servers}`

// claudeCode is tried with 2.1.197 and 2.1.330. Facts:
//   - At uid 0 it refuses --dangerously-skip-permissions unless IS_SANDBOX=1. Its shell tool needs bash, a writable
//     HOME and a private, writable /tmp.
//   - Without .claude.json (onboarding, theme, trust, and the key's last 20 characters as approved) the interactive
//     program shows its own questions first, or asks hosts that it cannot reach and exits with 1.
//   - CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 stops every request but those to the base URL: HEAD /, which may fail,
//     and POST /v1/messages. The interactive program also asks three hosts for its marketplace of plug-ins, unless
//     CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL=1.
//   - --disallowedTools removes a tool from those that it offers to the model. Without a name it removes none.
//   - With CLAUDE_CODE_OAUTH_TOKEN it sends Authorization: Bearer, and oauth-2025-04-20 among the values of
//     Anthropic-Beta. So the route replaces one header only, whichever kind the credential has.
//   - CLAUDE_CODE_MAX_RETRIES: a refused base URL otherwise costs three minutes. After a 429 it prints a result with
//     is_error and exits with 1, and --resume SESSION continues under the same session id.
//   - A result "success" with exit code 0 does not prove that a tool ran.
//   - It follows a link from CLAUDE.md to another directory.
func claudeCode() Provider {
	const noHosted = "--disallowedTools={hosted}"
	flags := []string{"--model", "{model}", "--output-format", "stream-json", "--verbose", noHosted, "--dangerously-skip-permissions",
		"--mcp-config", ConfigDir + "/.demesne-mcp.json", "--strict-mcp-config"}
	const base, baseEnv = "https://api.anthropic.com", "ANTHROPIC_BASE_URL"
	oauth := Credential{Base: base, Header: "Authorization", Scheme: "Bearer",
		Inside: map[string]string{"CLAUDE_CODE_OAUTH_TOKEN": "{token}"}}
	setup, own, login := oauth, oauth, oauth
	setup.Env, own.Env, login.File, login.Kind = "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "~/.claude/.credentials.json", "claude-login"
	return Provider{
		Name: "claude-code", Command: "claude", Enable: "DEMESNE_CLAUDE_CODE_ENABLED", Format: "claude",
		Models: []string{"sonnet", "opus", "fable", "haiku"},
		Arguments: Arguments{
			Headless:    append([]string{"-p", "{prompt}"}, flags...),
			Resume:      append([]string{"-p", "{prompt}", "--resume", "{session}"}, flags...),
			Interactive: []string{"--mcp-config", ConfigDir + "/.demesne-mcp.json", noHosted, "{skip}", "{args}"},
			Continue:    []string{"--continue"},
			Commands:    words("agents auth auto-mode doctor gateway install mcp plugin plugins project setup-token ultrareview update upgrade"),
		},
		Image: Image{Mention: "@{file}"},
		Prompts: Prompts{Skip: words("--dangerously-skip-permissions"), Ask: words("--permission-mode default"),
			Chosen: words("--permission-mode* --permission-prompt-tool* --dangerously-skip-permissions --allow-dangerously-skip-permissions")},
		ACP: ACP{Command: "claude-agent-acp", Variable: "CLAUDE_CODE_EXECUTABLE", Capabilities: capabilities("resume", "list", "close", "fork")},
		Env: map[string]string{
			"ANTHROPIC_BASE_URL":                                   "{url}",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC":             "1",
			"CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
			"DISABLE_AUTOUPDATER":                                  "1",
			"CLAUDE_CODE_MAX_RETRIES":                              "2",
			"MCP_TIMEOUT":                                          "60000",
			"MCP_TOOL_TIMEOUT":                                     "172800000",
		},
		Context: "CLAUDE.md",
		Project: []string{".mcp.json", ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/x", ".claude/commands/x.md",
			".claude/agents/x.md", ".claude/skills/x/SKILL.md", ".claude/plugins/x"},
		Config: map[string]string{".demesne-mcp.json": `{"mcpServers":{{servers}}}` + "\n"},
		Home: map[string]string{
			".claude.json": `{"hasCompletedOnboarding":true,"theme":"dark","bypassPermissionsModeAccepted":true,"autoUpdates":false,` +
				`"customApiKeyResponses":{"approved":["{token20}"],"rejected":[]},` +
				`"projects":{"{dir}":{"hasTrustDialogAccepted":true,"hasCompletedProjectOnboarding":true}}}` + "\n",
			".claude/settings.json": `{"skipDangerousModePermissionPrompt":true}` + "\n",
		},
		Settings: settings(".claude/skills .claude/agents", ".claude/commands", ".claude/CLAUDE.md .claude/rules"),
		Servers:  Servers{Entry: `"{name}":{"type":"http","url":"{url}"}`, Join: ","},
		Tools:    Tools{File: "~/.claude.json", Env: "DEMESNE_CLAUDE_CODE_MCP_CONFIG", Format: "json"},
		API: API{Port: messagesPort, Usage: "messages",
			Query: []string{"beta"}, Headers: []string{"Anthropic-*", "X-App", "X-Stainless-*", "X-Claude-Code-*", "X-Client-Request-Id"},
			Allow: []string{"POST /v1/messages", "POST /v1/messages/count_tokens"}, Hosted: Hosted{Closed: "WebSearch"}},
		Credentials: []Credential{
			setup,
			{Env: "ANTHROPIC_API_KEY", Base: base, BaseEnv: baseEnv, Header: "X-Api-Key", Inside: map[string]string{"ANTHROPIC_API_KEY": "{token}"}},
			{Env: "ANTHROPIC_AUTH_TOKEN", Base: base, BaseEnv: baseEnv, Header: "Authorization", Scheme: "Bearer",
				Inside: map[string]string{"ANTHROPIC_AUTH_TOKEN": "{token}"}},
			own, login,
		},
		Missing: "DEMESNE_CLAUDE_CODE_OAUTH_TOKEN is required for {tool} (run `claude setup-token` to obtain one)",
		Program: Program{Native: "@anthropic-ai/claude-code-linux-{arch}/claude", Shell: "bash", Image: "demesne/claude-code"},
		Retry:   retry(6, 39600*time.Second),
	}
}

// openCode is tried with 1.18.33, against any server of the Chat Completions interface. Facts:
//   - It takes the provider from the file of OPENCODE_CONFIG; {env:NAME} there is a variable. Its own state is below
//     the XDG directories, which must be writable.
//   - It asks npm for plug-ins on its first start, in the background: npm_config_offline ends that at once.
//   - It waits itself for Retry-After of a 429. `run --session ID` continues under the same id.
func openCode() Provider {
	run := []string{"run", "--format", "json", "-m", "demesne/{model}"}
	return Provider{
		Name: "opencode", Command: "opencode", Enable: "DEMESNE_OPENCODE_ENABLED", Format: "opencode",
		Models: []string{"opencode/gpt-5.5", "opencode/gpt-5.4-mini"}, Prefix: "opencode/",
		Arguments: Arguments{
			Headless:    append(run, "{prompt}"),
			Resume:      append(run[:len(run):len(run)], "--session", "{session}", "{prompt}"),
			Interactive: []string{"{args}"},
			Continue:    []string{"--continue"},
			Commands:    words("completion mcp debug providers auth agent upgrade uninstall models stats export import session plugin plug db"),
		},
		Image:   Image{Argument: "--file={file}"},
		Prompts: Prompts{Ask: []string{}, AskEnv: map[string]string{"OPENCODE_PERMISSION": `{"edit":"ask","bash":"ask","webfetch":"ask"}`}},
		ACP:     ACP{Arguments: words("acp"), Capabilities: capabilities("list", "resume", "fork")},
		Env: map[string]string{
			"OPENCODE_CONFIG":                  "{home}/.config/opencode/demesne.json",
			"OPENCODE_DISABLE_AUTOUPDATE":      "1",
			"OPENCODE_DISABLE_MODELS_FETCH":    "1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD":    "1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
			"npm_config_offline":               "true",
		},
		Context: "AGENTS.md",
		Project: []string{"opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/plugin/x.ts", ".opencode/command/x.md", ".opencode/tool/x.ts"},
		Home: map[string]string{".config/opencode/demesne.json": `{"autoupdate":false,"share":"disabled","permission":{"*":"allow"},` +
			`"enabled_providers":["demesne"],"model":"demesne/{model}","small_model":"demesne/{model}","mcp":{{servers}},` +
			`"provider":{"demesne":{"npm":"@ai-sdk/openai-compatible","name":"demesne","options":{"baseURL":"{url}",` +
			`"apiKey":"{env:OPENAI_API_KEY}"},"models":{"{model}":{"name":"{model}","attachment":true,"modalities":{"input":["text","image"],"output":["text"]}}}}}}` + "\n"},
		Settings:    settings(".config/opencode/skills .config/opencode/skill", ".config/opencode/commands .config/opencode/command", ".config/opencode/AGENTS.md"),
		Servers:     Servers{Entry: `"{name}":{"type":"remote","url":"{url}","enabled":true,"timeout":172800000}`, Join: ","},
		API:         API{Port: chatPort, Usage: "chat", Allow: []string{"POST /chat/completions"}},
		Credentials: []Credential{openAIKey()},
		Missing:     "OPENAI_API_KEY is required for {tool} when using an opencode model",
		Program:     Program{Native: "opencode-linux-{arch}/bin/opencode"},
		Retry:       retry(6, 21600*time.Second),
	}
}

// geminiCLI is tried with 0.61. Facts:
//   - It is a script for node 20 or later, in one bundle. What it depends on is optional.
//   - settings.json must select the key as its way to authenticate, or it exits with 41. It retries a 429 on its own,
//     up to general.maxAttempts times. `--resume SESSION` takes the id of the init event and keeps it.
//   - Its tools refuse paths outside its directory and context.includeDirectories, and shell commands with $(…) or
//     backquotes. The second cannot be changed. web_fetch has the provider fetch a page, before it tries itself.
//   - The setting tools.exclude would remove its tools that run at the provider, with a warning at each start.
//   - Without a model it asks another one which model to use, and it asks others for small tasks. So the allowlist has
//     all that it knows.
func geminiCLI() Provider {
	flags := []string{"-m", "{model}", "--approval-mode", "yolo", "--output-format", "stream-json"}
	return Provider{
		Name: "gemini-cli", Command: "gemini", Enable: "DEMESNE_GEMINI_CLI_ENABLED", Format: "gemini",
		Models: []string{"gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite"},
		Side: []string{"gemini-3.1-pro-preview", "gemini-3-pro-preview", "gemini-3-flash-preview", "gemini-3.1-flash-lite",
			"gemini-3.1-flash-lite-preview", "gemini-3.5-flash", "gemini-3.5-flash-lite"},
		Arguments: Arguments{
			Headless:    append(flags, "-p", "{prompt}"),
			Resume:      append(flags[:len(flags):len(flags)], "--resume", "{session}", "-p", "{prompt}"),
			Interactive: []string{"{skip}", "{args}"},
			Continue:    []string{"--resume", "latest"},
			Commands:    words("mcp extensions extension skills skill hooks hook gemma"),
		},
		Image:   Image{Mention: "@{file}"},
		Prompts: Prompts{Skip: words("--approval-mode yolo"), Ask: words("--approval-mode default"), Chosen: words("--approval-mode* -y --yolo --acp --experimental-acp")},
		ACP:     ACP{Arguments: words("--acp"), Capabilities: capabilities()},
		Env:     map[string]string{"GEMINI_MODEL": "{model}", "GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_TELEMETRY_ENABLED": "false"},
		Context: "GEMINI.md",
		Project: []string{".gemini/settings.json", ".gemini/extensions/x/gemini-extension.json", ".gemini/commands/x.toml", ".gemini/.env", ".gemini/system.md"},
		Home: map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"},"folderTrust":{"enabled":false}},` +
			`"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"ide":{"enabled":false,"hasSeenNudge":true},` +
			`"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":2},` +
			`"context":{"includeDirectories":["/in","/out","/workspace"]},"mcpServers":{{servers}}}` + "\n"},
		Settings: settings(".gemini/skills", ".gemini/commands", ".gemini/GEMINI.md"),
		Servers:  Servers{Entry: `"{name}":{"httpUrl":"{url}","timeout":172800000,"trust":true}`, Join: ","},
		API: API{Port: generatePort, Usage: "generate", Query: []string{"alt"}, Headers: []string{"X-Goog-Api-Client", "X-Gemini-Api-Privileged-User-Id"}, Allow: []string{"POST /v1beta/models/{model}:streamGenerateContent",
			"POST /v1beta/models/{model}:generateContent", "POST /v1beta/models/{model}:countTokens"}},
		Credentials: []Credential{geminiKey("GEMINI_API_KEY"), geminiKey("GOOGLE_API_KEY")},
		Missing:     "GEMINI_API_KEY is required for {tool} when using a gemini model",
		Retry:       retry(6, 21600*time.Second),
	}
}

func geminiKey(env string) Credential {
	return Credential{Env: env, Base: "https://generativelanguage.googleapis.com", BaseEnv: "GOOGLE_GEMINI_BASE_URL", Header: "X-Goog-Api-Key",
		Inside: map[string]string{"GEMINI_API_KEY": "{token}"}}
}
