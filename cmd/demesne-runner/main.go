// The runtime would open the cgroup's CPU limit and keep watching it, here and in
// libcontainer's half of each sandbox: nothing here computes.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-runner makes sandboxes; see package engine. It is started by
// demesne, never by hand.
package main

import (
	"fmt"
	"os"
	"runtime"

	"demesne/runner/doctor"
	"demesne/runner/engine"
	"demesne/runner/reap"
	"demesne/runner/userns"
	_ "demesne/runner/userns/constructor" // ours
)

// A goroutine that changes its thread's namespaces ends with the thread locked, and
// the thread with it. The main thread cannot end: it is kept out of their reach, or
// /proc/self would show a sandbox's namespaces and keep them alive.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		engine.Inside()
	}
	if len(os.Args) > 2 && os.Args[1] == "enter" {
		os.Exit(userns.Become(os.Args[2:]))
	}
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "reap":
			os.Exit(reap.Run())
		case "settle":
			os.Exit(reap.Settle())
		case "tidy":
			os.Exit(reap.Tidy())
		}
	}
	doctor.Reexec()
	if len(os.Args) != 1 {
		fmt.Fprintln(os.Stderr, "demesne-runner: to be started by demesne, not by hand")
		os.Exit(125)
	}
	os.Exit(engine.Main())
}
