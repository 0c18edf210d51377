// Keep the Go runtime from opening and watching the cgroup's CPU limit, here and in libcontainer's part of each
// sandbox: neither is CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-runner makes sandboxes; see package engine. Only demesne's own programs start it. It needs cgo: a C
// constructor (userns.c) puts it into its user namespace before the Go runtime starts; see package userns. The same
// program cleans up after a killed runner (reap.go).
package main

import (
	"fmt"
	"os"
	"runtime"

	"demesne/internal/cmdline"
	"demesne/runner/container"
	"demesne/runner/doctor"
	"demesne/runner/engine"
	"demesne/runner/userns"
)

// A goroutine that changes its thread's namespaces exits with the thread locked, which ends the thread. The
// main thread cannot end, so it is reserved: otherwise /proc/self would show a sandbox's namespaces and keep
// them alive.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		container.Inside()
	}
	if len(os.Args) > 2 && os.Args[1] == "enter" {
		os.Exit(userns.Become(os.Args[2:]))
	}
	if len(os.Args) == 2 {
		switch os.Args[1] {
		case "reap":
			os.Exit(reap())
		case "settle":
			os.Exit(settleChild())
		case "tidy":
			os.Exit(tidy())
		}
	}
	program := cmdline.Program{Name: "demesne-runner", Summary: "make sandboxes for demesne",
		About: "Makes the sandboxes of one user. demesne and its frontends start this program."}
	if text, ok := program.Answer(os.Args[1:]); ok {
		os.Stdout.WriteString(text)
		return
	}
	doctor.Reexec()
	if len(os.Args) != 1 {
		fmt.Fprintln(os.Stderr, "demesne-runner: demesne starts this program; users do not")
		os.Exit(125)
	}
	os.Exit(engine.Main())
}
