package agent

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"demesne/agents/agentcmd"
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/runner/client"
)

// frontend runs agents without a terminal.
const frontend = "agent"

// executeAgent executes that frontend: run or research, with their flags.
func executeAgent(args []string) (int, error) {
	return app.Become(append([]string{frontend}, args...)...)
}

// Research returns demesne research.
func Research() app.Verb {
	flags := func() cmdline.Flags { return (&agentcmd.Options{}).Flags(true) }
	return app.External(*(&agentcmd.Options{}).Command(true), flags, client.FrontendProgram, frontend, "research")
}

// agentRunTopic describes demesne agent run on the page of demesne agent.
func agentRunTopic() cmdline.Topic {
	c := (&agentcmd.Options{}).Command(false)
	t := cmdline.Topic{Section: "AGENT RUN", Summary: c.Summary, Text: "demesne agent run " + strings.Join(c.Usage, "") + "\n\n" + c.About}
	for _, f := range c.Flags {
		t.Entries = append(t.Entries, cmdline.Entry{Name: strings.TrimSpace("--" + f.Long + " " + f.Arg), Text: f.Help})
	}
	return t
}

// post sends a JSON body to a URL. It is agents.Options.Post. The frontend of agents sends it, because net/http would slow
// down the start of this program.
func post(ctx context.Context, url string, body []byte) (status int, response []byte, err error) {
	argv, err := client.FindFrontend(frontend)
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1], "post", url)
	cmd.Stdin = bytes.NewReader(body)
	out, err := cmd.Output()
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", argv[0], err)
	}
	line, response, found := bytes.Cut(out, []byte("\n"))
	if _, err := fmt.Sscan(string(line), &status); err != nil || !found {
		return 0, nil, fmt.Errorf("run %s: it printed no status", argv[0])
	}
	return status, response, nil
}
