// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-images does the image work that a run does not need: registries, archives, unpacking: see package images/worker.
package main

import "demesne/images/worker"

func main() { worker.Main() }
