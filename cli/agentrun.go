package cli

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/mcp/install"
	"demesne/runner/client"
)

// headlessProgram runs agents without a terminal. It is a separate program because it serves HTTP and links the MCP
// library, which would cost every run milliseconds.
const headlessProgram = "demesne-agent"

// executeAgent executes that program: run or research, with their flags.
func executeAgent(args []string) (int, error) { return executeProgram(headlessProgram, args) }

// executeProgram executes another program of demesne in place of this one.
func executeProgram(name string, args []string) (int, error) {
	path, err := client.FindProgram(name)
	if err != nil {
		return 0, err
	}
	if err := unix.Exec(path, append([]string{name}, args...), os.Environ()); err != nil {
		return 0, fmt.Errorf("start %q: %w", path, err)
	}
	return 0, nil
}

func researchCommand() command {
	line := *install.AgentCommand(&install.AgentOptions{}, true)
	line.Raw, line.Flags = true, nil
	return command{
		Command: line,
		flags:   func(*options) cmdline.Flags { return install.AgentFlags(&install.AgentOptions{}, true) },
		run: func(_ *app, _ *options, args []string) (int, error) {
			return executeAgent(append([]string{"research"}, args...))
		},
	}
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
