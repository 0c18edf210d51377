// Package tree runs a coding agent in a sandbox, with the agents and commands that it starts through the MCP server in its
// sandbox, and theirs. All of them live in one process. So one signal ends the whole tree, what a child uses counts as its
// parent's, and a killed process leaves nothing: its sandboxes end with its connection to the runner.
//
//	tree.go, node.go    one agent from its directories to its results; dirs.go has the layout
//	attempts.go         the executions of its program: rate limits, renewed credentials; retry.go
//	backend.go          its children: names.go, childdir.go, registry.go (jobs), sandboxes.go (sandboxes)
//	usage.go, budget.go what it uses, and may use
//
// The package is the same for all vendors: package agents plans what is executed. A sandbox never gets a credential. The routes
// that the proxy provides on its loopback insert it.
package tree
