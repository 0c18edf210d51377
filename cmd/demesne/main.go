// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne runs untrusted commands in rootless sandboxes: see package cli.
package main

import "demesne/cli"

func main() { cli.Main() }
