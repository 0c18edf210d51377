// Package headless runs coding agents in sandboxes, without a terminal: the frontend agent of demesne-frontend.
//
//	run PROMPT        runs an agent; demesne agent run executes this
//	research PROMPT   the same, with the whole network and without inputs; demesne research executes this
//	attend-job ID     runs an agent as a background job; --background and the MCP server start this
//	request           runs the agent of one JSON line on stdin, and prints events as JSON lines, the last of them with the
//	                  result; the MCP server starts this, and closes stdin to end it
//	post URL          sends stdin to a server that renews a credential, for demesne, which does not link net/http
//
// Package agents/tree runs the agents. This package has the command lines (console.go), what people see (view.go), and the
// operator's rules for the MCP servers in the agents' sandboxes (serve.go, hosttools.go).
//
// The exit code is the agent program's. It is 137 if the run went over its budget, and 125 if the program ended
// without having done its work; stderr has the reason.
package headless

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/procself"
)

// Main executes the command line of the process, and exits.
func Main() {
	unix.Umask(0o077)
	procself.OwnHome()
	procself.OwnState(fsutil.StateVariable) // on an error, what needs a directory reports it
	f := &console{cmdline.OwnConsole()}
	os.Exit(f.main(os.Args[1:]))
}
