// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-build builds images: see package build/executor.
package main

import "demesne/build/executor"

func main() { executor.Main() }
