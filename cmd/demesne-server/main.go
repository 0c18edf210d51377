// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-server serves HTTP APIs over sandboxes: see package server/serve.
package main

import "demesne/server/serve"

func main() { serve.Main() }
