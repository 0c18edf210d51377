// Keep the Go runtime from opening and watching the cgroup's CPU limit.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-proxy decides what sandboxes may reach: see package proxy/daemon.
package main

import "demesne/proxy/daemon"

func main() { daemon.Main() }
