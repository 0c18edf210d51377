// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-mcp is demesne's MCP server, over stdio or HTTP: see package mcp/serve.
package main

import "demesne/mcp/serve"

func main() { serve.Main() }
