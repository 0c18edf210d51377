package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"

	"demesne/agents"
	"demesne/agents/terminal"
	"demesne/cli/acp"
	"demesne/cli/app"
	"demesne/cli/launch"
	"demesne/internal/cmdline"
	"demesne/internal/text"
)

// acpOptions are the flags of demesne acp: the flags of demesne agent, without some that need a terminal.
type acpOptions struct {
	agentOptions
	passed   []string // flags, for each sandbox
	requests bool
}

// ACP returns demesne acp.
func ACP() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "acp", Usage: []string{"[flags] NAME [ARG…]"}, Summary: "serve a coding agent to an editor, by the Agent Client Protocol",
			About: `Speaks the Agent Client Protocol on stdin and stdout, for an editor that starts this command. It answers initialize at once.
When the editor opens a session, it starts the agent NAME in a sandbox with the session's directory, as demesne agent does
there, and passes messages between both. Sessions in one directory share a sandbox.

claude and codex speak through their published adapters, which run inside the sandbox: install them by npm install --global
@agentclientprotocol/claude-agent-acp or @agentclientprotocol/codex-acp. Other agents speak the protocol themselves.

The agent asks for permissions, and the editor shows its questions and its changes. The agent may read and write files
of the project through the editor. Requests for other files, for files that programs of this machine execute, and for
terminals are refused, because the editor acts outside of the sandbox.`,
			Examples: []cmdline.Example{
				{Says: "the command line for an editor's settings", Line: "demesne acp claude"},
				{Says: "let the agent reach one more name", Line: "demesne acp --allow-domain api.example.com codex"},
			},
			Operand: cmdline.Argv, Words: []string{"claude", "codex", "opencode", "gemini", "qwen", "copilot"},
		},
		New: func(a *app.App) app.Options {
			return &acpOptions{agentOptions: agentOptions{Options: launch.Options{App: a}}}
		},
	}
}

// notACP are flags of demesne agent for a terminal.
var notACP = []string{"branch", "fork", "setup", "permissions", "acp", "ask", "ask-timeout"}

func (o *acpOptions) Flags() cmdline.Flags {
	flags := slices.DeleteFunc(o.agentOptions.Flags(), func(f cmdline.Flag) bool { return slices.Contains(notACP, f.Long) })
	for i := range flags {
		f := flags[i]
		flags[i].Set = func(value string) error {
			o.passed = append(o.passed, launch.Absolute(&f, value)...)
			return f.Set(value)
		}
	}
	return append(flags, cmdline.Flag{Group: app.GroupSandbox, Long: "allow-requests", Set: cmdline.On(&o.requests),
		Help: "pass the agent's requests that act outside of its sandbox: the editor's terminals, and files outside of the project"})
}

// Run serves an editor.
func (o *acpOptions) Run(args []string) (int, error) {
	if len(args) == 0 {
		return 0, text.Hinted(errors.New("no agent given"), "demesne acp claude, or demesne acp codex")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return 0, fmt.Errorf("find home directory: %w", err)
	}
	catalog, err := agents.Open(agents.Options{Env: o.Getenv, Home: home})
	if err != nil {
		return 0, err
	}
	row, err := catalog.Speaker(args[0])
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	runtime.LockOSThread() // the agents get SIGTERM when the thread that started them ends
	return 0, acp.Serve(acp.Options{
		Name: row.Name, Title: row.Command + " in demesne", Version: cmdline.Version, Capabilities: row.ACP.Capabilities, Requests: o.requests,
		Stderr: o.Stderr, Say: o.Say,
		Start: func(dir string) (*exec.Cmd, string, error) {
			p, err := terminal.Find(dir, home)
			if err != nil {
				return nil, "", err
			}
			cmd := exec.Command(self, slices.Concat([]string{"agent", "--acp"}, o.passed, args)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
			return cmd, p.Root, nil
		},
	}, o.Stdin, o.Stdout)
}
