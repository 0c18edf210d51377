// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-images does the image work that a run does not need. It reads untrusted archives and Containerfiles: it
// builds (see package build/worker), pulls, pushes, imports and unpacks (package images/worker).
//
// The verbs share a program but no rights. Unpacking gives up its own rights and confines itself before it reads a layer. A
// build keeps its user's rights, with which it calls the runner, and starts this program again for the work on layers.
package main

import (
	build "demesne/build/worker"
	images "demesne/images/worker"
)

func main() {
	build.Main()
	images.Main()
}
