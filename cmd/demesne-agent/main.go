// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-agent runs coding agents in sandboxes, without a terminal: see package agents/tree.
package main

import "demesne/agents/tree"

func main() { tree.Main() }
