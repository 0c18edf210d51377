// The runtime would open the cgroup's CPU limit and keep watching it; pid1.Main
// sets GOMAXPROCS itself.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-init is PID 1 of every sandbox. demesne-runner starts it with the
// runner's socket at descriptor 3; it is of no use to anybody else. Build it with
// CGO_ENABLED=0: it runs on root filesystems that are not the host's, and changes
// capabilities on all its threads, which Go refuses to do beside C.
package main

import (
	"os"

	"demesne/runner/files/inside"
	"demesne/runner/pid1"
	"demesne/runner/tarball"
)

func main() {
	switch len(os.Args) { // with arguments: a command of the sandbox, not its PID 1
	case 3:
		os.Exit(tarball.Inside(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case 2:
		os.Exit(inside.Main(os.Stdin, os.Stdout))
	}
	os.Exit(pid1.Main())
}
