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
			Help: "with yes: how long a pattern, or the same command again, is allowed (default for a pattern and most the policy's)"},
		{Group: "Result", Long: "all", Set: cmdline.On(&o.All), Help: "with list: the requests that were decided too"},
		{Group: "Result", Long: "json", Set: cmdline.On(&o.JSON), Help: "with list: print JSON"},
	}
}

// ApproveCommand returns demesne approve with its help.
func ApproveCommand(o *ApproveOptions) *cmdline.Command {
	return &cmdline.Command{
		Name: "approve", Usage: []string{"[list] [--all] [--json]", "yes [--for DURATION] ID", "no ID…"}, Summary: "decide about commands that want to run on this machine",
		About: `Models and programs can ask for commands and files of this machine itself, if the operator turned that on: demesne serve
--host-policy, or the tool set host of demesne mcp. What the policy does not list waits here for a person.

list shows the waiting requests. Each word of a command is shown as the program gets it: no shell is involved. yes shows one
request, asks on the terminal, and lets it happen once. If a program, directory or file changed
since the request, demesne refuses it: only what was shown happens. no refuses requests, and ends the time of an approved pattern.

yes needs a terminal. An approved command has all your rights.`,
		Examples: []cmdline.Example{
			{Says: "show what waits", Line: "demesne approve"},
			{Says: "approve one request, after a look at it", Line: "demesne approve yes k3vq2xw7"},
			{Says: "refuse two", Line: "demesne approve no k3vq2xw7 aq5tzz3c"},
		},
		Words: []string{"list", "yes", "no"},
		Flags: ApproveFlags(o),
	}
}
