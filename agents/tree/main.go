// Package tree runs coding agents in sandboxes, without a terminal: the frontend agent of demesne-frontend.
//
//	run PROMPT        runs an agent; demesne agent run executes this
//	research PROMPT   likewise, with the whole network and without inputs; demesne research executes this
//	attend-job ID     runs an agent as a background job; --background and the MCP server start this
//	request           runs the agent of one JSON line on stdin, and prints events as JSON lines, the last of them with the
//	                  result; the MCP server starts this, and closes stdin to end it
//
// One process runs one tree: the first agent, the agents and commands that it starts through the MCP server in its
// sandbox, and theirs. So one signal ends the whole tree, what a child uses counts as its parent's, and a killed process
// leaves nothing: its sandboxes end with its connection to the runner.
//
//	tree.go, node.go    one agent from its directories to its results; dirs.go has the layout
//	attempts.go         the executions of its program: rate limits, renewed credentials; retry.go
//	backend.go          its children: names.go, childdir.go, registry.go (jobs), sandboxes.go (sandboxes)
//	usage.go, budget.go what it uses, and may use
//	console.go, view.go    command lines, and what people see
//
// The package knows no vendor: package agents plans what is executed. A sandbox never gets a credential. The routes that
// the proxy provides on its loopback insert it.
//
// The exit code is that of the agent's program. It is 137 if the run went over its budget, and 125 if the program ended
// without having done its work; stderr has the reason.
package tree

import (
	"os"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/procself"
)

// Main executes the command line of the process, and exits.
func Main() {
	unix.Umask(0o077)
	procself.OwnHome()
	procself.OwnState(fsutil.StateVariable) // on an error, what needs a directory reports it
	f := &console{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.LookupEnv}
	os.Exit(f.main(os.Args[1:]))
}
