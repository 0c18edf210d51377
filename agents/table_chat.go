package agents

import "time"

// The rows of this file use the Chat Completions interface of any server, by the variables that openAIKey names.

// qwenCode is tried with 0.24. Facts:
//   - It is a script for node 22 or later, in one package. Its output has claude's format.
//   - settings.json must select "openai" as its way to authenticate, or it exits with 1. OPENAI_BASE_URL is the server.
//   - It retries a 429 for minutes, unless maxRetries is set. `--resume SESSION` continues under the same id.
//   - It lists tools of MCP servers to the model only after a search for them, unless tools.toolSearch is disabled.
//   - web_fetch fetches a page itself. No tool of its list runs at the provider.
func qwenCode() Provider {
	flags := []string{"-m", "{model}", "--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "stream-json"}
	return Provider{
		Name: "qwen-code", Command: "qwen", Enable: "DEMESNE_QWEN_CODE_ENABLED", Format: "claude",
		Models: []string{"qwen/qwen3-coder-plus", "qwen/qwen3-coder-flash"}, Prefix: "qwen/",
		Arguments: Arguments{
			Headless:    append(flags, "-p", "{prompt}"),
			Resume:      append(flags[:len(flags):len(flags)], "--resume", "{session}", "-p", "{prompt}"),
			Interactive: []string{"--auth-type", "openai", "{skip}", "{args}"},
			Continue:    []string{"--continue"},
			Commands:    words("auth board channel extensions hooks mcp sandbox sessions update"),
		},
		Prompts: Prompts{Skip: words("--approval-mode yolo"), Ask: words("--approval-mode default"), Chosen: words("--approval-mode* -y --yolo")},
		ACP:     ACP{Arguments: words("--acp"), Capabilities: capabilities("list", "resume")},
		Env:     map[string]string{"OPENAI_BASE_URL": "{url}", "OPENAI_MODEL": "{model}", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1", "QWEN_SANDBOX": "false"},
		Context: "QWEN.md",
		Project: []string{".qwen/settings.json", ".qwen/agents/x.md", ".qwen/commands/x.md", ".qwen/skills/x/SKILL.md", ".qwen/extensions/x/qwen-extension.json",
			".qwen/hooks/x", ".qwen/.env"},
		Home: map[string]string{".qwen/settings.json": `{"security":{"auth":{"selectedType":"openai"},"folderTrust":{"enabled":false}},` +
			`"privacy":{"usageStatisticsEnabled":false},"telemetry":{"enabled":false},"ide":{"enabled":false,"hasSeenNudge":true},` +
			`"general":{"enableAutoUpdate":false,"disableAutoUpdate":true,"disableUpdateNag":true},` +
			`"tools":{"approvalMode":"yolo","toolSearch":{"enabled":false}},"model":{"name":"{model}","generationConfig":{"maxRetries":1}},` +
			`"context":{"includeDirectories":["/in","/out","/workspace"]},"mcpServers":{{servers}}}` + "\n"},
		Settings: settings(".qwen/skills .qwen/agents", ".qwen/commands", ".qwen/QWEN.md"),
		Servers:  Servers{Entry: `"{name}":{"httpUrl":"{url}","timeout":172800000,"trust":true}`, Join: ","},
		API:      API{Port: chatPort, Usage: "chat", Allow: []string{"POST /chat/completions"}},
		Credentials: []Credential{
			{Env: "DASHSCOPE_API_KEY", Base: "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", BaseEnv: "DASHSCOPE_BASE_URL", Header: "Authorization",
				Scheme: "Bearer", Inside: map[string]string{"OPENAI_API_KEY": "{token}"}},
			openAIKey(),
		},
		Missing: "DASHSCOPE_API_KEY or OPENAI_API_KEY is required for {tool} when using a qwen model",
		Retry:   retry(6, 21600*time.Second),
	}
}

// copilotCLI is tried with 1.0.102, against any server of the interface. Facts:
//   - A subscription of GitHub Copilot is not used: its models need several hosts and a token that the program exchanges.
//     COPILOT_PROVIDER_BASE_URL selects the server, and COPILOT_OFFLINE stops every other request.
//   - COPILOT_ALLOW_ALL=true trusts the directory, and thereby its hooks and MCP servers, without a question.
//   - Its id of a session is in the last line of its output. `--session-id SESSION` continues under the same id.
//   - The package is one executable, which unpacks itself below XDG_CACHE_HOME.
func copilotCLI() Provider {
	flags := []string{"--model", "{model}", "--allow-all", "--no-auto-update", "--output-format", "json"}
	return Provider{
		Name: "copilot-cli", Command: "copilot", Enable: "DEMESNE_COPILOT_CLI_ENABLED", Format: "copilot",
		Models: []string{"copilot/gpt-5.5", "copilot/gpt-5.4-mini"}, Prefix: "copilot/",
		Arguments: Arguments{
			Headless:    append(flags, "-p", "{prompt}"),
			Resume:      append(flags[:len(flags):len(flags)], "--session-id", "{session}", "-p", "{prompt}"),
			Interactive: []string{"{skip}", "--no-auto-update", "{args}"},
			Continue:    []string{"--continue"},
			Commands:    words("app login help init config update version workflow sessions memories plugin mcp skill instruction lsp"),
		},
		Prompts: Prompts{Skip: words("--allow-all"), Ask: []string{}, AskEnv: map[string]string{"COPILOT_ALLOW_ALL": ""},
			Chosen: words("--allow-tool* --deny-tool* --allow-all* --yolo")},
		ACP: ACP{Arguments: words("--acp"), Capabilities: capabilities("list", "close")},
		Env: map[string]string{
			"COPILOT_PROVIDER_BASE_URL": "{url}",
			"COPILOT_MODEL":             "{model}",
			"COPILOT_OFFLINE":           "true",
			"COPILOT_AUTO_UPDATE":       "false",
			"COPILOT_ALLOW_ALL":         "true",
			"COPILOT_HOME":              "{home}/.copilot",
		},
		Context: "AGENTS.md",
		Project: []string{".mcp.json", ".github/copilot/settings.json", ".github/hooks/x.json", ".github/agents/x.agent.md", ".github/skills/x/SKILL.md",
			".github/extensions/x/extension.mjs", ".github/mcp.json", ".github/lsp.json"},
		Home:     map[string]string{".copilot/mcp-config.json": `{"mcpServers":{{servers}}}` + "\n"},
		Settings: settings(".copilot/skills .copilot/agents", ".copilot/prompts", ".copilot/copilot-instructions.md"),
		Servers:  Servers{Entry: `"{name}":{"type":"http","url":"{url}","tools":["*"],"timeout":172800000}`, Join: ","},
		API:      API{Port: chatPort, Usage: "chat", Allow: []string{"POST /chat/completions"}},
		Credentials: []Credential{{Env: "OPENAI_API_KEY", Base: openAIBase, BaseEnv: "OPENAI_BASE_URL", Header: "Authorization", Scheme: "Bearer",
			Inside: map[string]string{"COPILOT_PROVIDER_API_KEY": "{token}"}}},
		Missing: "OPENAI_API_KEY is required for {tool} when using a copilot model",
		Program: Program{Native: "@github/copilot-linux-{arch}/copilot"},
		Retry:   retry(6, 21600*time.Second),
	}
}

// piAgent is tried with 0.74. Facts:
//   - It is a script for node 20 or later, with the packages that it depends on.
//   - It takes the provider from models.json, where apiKey names a variable.
//   - It has no client of MCP servers. So it starts no children, and has no tools of the host.
//   - It exits with 0 also after an error of the server. The last message says so.
//   - `--session ID` continues under the same id.
func piAgent() Provider {
	flags := []string{"--mode", "json", "--offline", "--model", "demesne/{model}"}
	return Provider{
		Name: "pi", Command: "pi", Enable: "DEMESNE_PI_ENABLED", Format: "pi",
		Models: []string{"pi/gpt-5.5", "pi/gpt-5.4-mini"}, Prefix: "pi/",
		Arguments: Arguments{
			Headless:    append(flags, "-p", "{prompt}"),
			Resume:      append(flags[:len(flags):len(flags)], "--session", "{session}", "-p", "{prompt}"),
			Interactive: []string{"--offline", "--model", "demesne/{model}", "{args}"},
			Continue:    []string{"--continue"},
			Commands:    words("install remove uninstall update list config"),
		},
		Image:    Image{Argument: "@{file}"},
		Env:      map[string]string{"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
		Context:  "AGENTS.md",
		Project:  []string{".pi/settings.json", ".pi/extensions/x.ts", ".pi/skills/x/SKILL.md", ".pi/prompts/x.md"},
		Settings: settings(".pi/agent/skills", ".pi/agent/prompts", ".pi/agent/AGENTS.md"),
		Home: map[string]string{
			".pi/agent/models.json": `{"providers":{"demesne":{"baseUrl":"{url}","api":"openai-completions","apiKey":"OPENAI_API_KEY",` +
				`"models":[{"id":"{model}","input":["text","image"]}]}}}` + "\n",
			".pi/agent/settings.json": `{"enableInstallTelemetry":false,"retry":{"maxRetries":1}}` + "\n",
		},
		API:         API{Port: chatPort, Usage: "chat", Allow: []string{"POST /chat/completions"}},
		Credentials: []Credential{openAIKey()},
		Missing:     "OPENAI_API_KEY is required for {tool} when using a pi model",
		Retry:       retry(6, 21600*time.Second),
	}
}
