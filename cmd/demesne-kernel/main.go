// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-kernel executes code in kernels that run in sandboxes: see package kernels/jupyter.
package main

import "demesne/kernels/jupyter"

func main() { jupyter.Main() }
