package servecmd

import (
	"time"

	"demesne/internal/cmdline"
)

// ApproveOptions holds the flags of demesne approve.
type ApproveOptions struct {
	All, JSON bool
	For       time.Duration
}

// ApproveFlags returns the flags of demesne approve, bound to o.
func ApproveFlags(o *ApproveOptions) cmdline.Flags {
	const group = "Decision"
	return cmdline.Flags{
		{Group: group, Long: "for", Arg: "DURATION", Set: cmdline.Duration(&o.For),
			Help: "how long a pattern, or the same command again, is allowed (default for a pattern and most the policy's)"},
		{Group: "Result", Long: "all", Set: cmdline.On(&o.All), Help: "list also the requests that were decided"},
		{Group: "Result", Long: "json", Set: cmdline.On(&o.JSON), Help: "list in JSON"},
	}
}

// ApproveCommand returns demesne approve with its help.
func ApproveCommand(o *ApproveOptions) *cmdline.Command {
	return &cmdline.Command{
		Name: "approve", Usage: []string{"[list] [--all] [--json]", "[--for DURATION] ID"}, Summary: "list and approve commands that want to run on this machine",
		About: `Models and programs can ask for commands and files of this machine itself, if the operator turned that on: demesne serve
--host-policy, or the tool set host of demesne mcp. Requests that the policy does not list wait here for a person.

Without an ID, demesne approve lists the waiting requests. Each word of a command is shown as the program gets it: no shell is
involved. With an ID it shows that request, asks on the terminal, and lets it happen once. If a program, directory or file changed
since the request, demesne refuses it: only what was shown happens. demesne deny refuses requests.

An approval needs a terminal. An approved command has all your rights.`,
		Examples: []cmdline.Example{
			{Says: "show what waits", Line: "demesne approve"},
			{Says: "approve one request, after a look at it", Line: "demesne approve k3vq2xw7"},
		},
		Words: []string{"list"},
		Flags: ApproveFlags(o),
	}
}

// DenyCommand returns demesne deny with its help.
func DenyCommand() *cmdline.Command {
	return &cmdline.Command{
		Name: "deny", Usage: []string{"ID…"}, Summary: "refuse commands that want to run on this machine",
		About:    "demesne approve lists the requests. Denying an approved pattern ends its time.",
		Examples: []cmdline.Example{{Says: "refuse two requests", Line: "demesne deny k3vq2xw7 aq5tzz3c"}},
	}
}
