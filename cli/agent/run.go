package agent

import (
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/mcp/install"
	"demesne/runner/client"
)

// frontend runs agents without a terminal.
const frontend = "agent"

// executeAgent executes that frontend: run or research, with their flags.
func executeAgent(args []string) (int, error) {
	return app.Become(client.FrontendProgram, append([]string{frontend}, args...))
}

// Research returns demesne research.
func Research() app.Verb {
	flags := func() cmdline.Flags { return install.AgentFlags(&install.AgentOptions{}, true) }
	return app.External(*install.AgentCommand(&install.AgentOptions{}, true), flags, client.FrontendProgram, frontend, "research")
}

// agentRunTopic describes demesne agent run on the page of demesne agent.
func agentRunTopic() cmdline.Topic {
	c := install.AgentCommand(&install.AgentOptions{}, false)
	t := cmdline.Topic{Section: "AGENT RUN", Summary: c.Summary, Text: "demesne agent run " + strings.Join(c.Usage, "") + "\n\n" + c.About}
	for _, f := range c.Flags {
		t.Entries = append(t.Entries, cmdline.Entry{Name: strings.TrimSpace("--" + f.Long + " " + f.Arg), Text: f.Help})
	}
	return t
}
