// Keep the Go runtime from opening and watching the cgroup's CPU limit: this program is not CPU-bound.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command demesne-frontend is every frontend but the command line: callers of a runner, for other programs and for models.
// The first argument names the frontend:
//
//	demesne-frontend mcp      the MCP server: see package mcp/serve
//	demesne-frontend serve    HTTP APIs: see package server/serve
//	demesne-frontend agent    coding agents without a terminal: see package agents/headless
//	demesne-frontend kernel, notebook, repl   code in kernels: see package kernels/jupyter
//	demesne-frontend selftest   attacks in a sandbox: see package runner/selftest
//	demesne-frontend kubernetes   jobs of a cluster: see package session/kubernetes/worker
//	demesne-frontend ray      jobs of a cluster: see package session/ray/worker
//	demesne-frontend docker   a Docker socket for one sandbox: see package server/docker
//	demesne-frontend webpage  fetches a page, in a sandbox: see package mcp/webpage
//	demesne-frontend vault    the stored secrets: see package session/vault
//	demesne-frontend ssh      an ssh connection to a sandbox: see package server/sshserver
//	demesne-frontend trust    approvals of a project's demesne.toml: see package server/trust
//
// A link named demesne-mcp starts that frontend, with all arguments. demesne executes this program for its verbs, because
// its libraries would cost every run milliseconds. All frontends have the rights of their user.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"demesne/agents/headless"
	"demesne/internal/cmdline"
	"demesne/kernels/jupyter"
	mcp "demesne/mcp/serve"
	"demesne/mcp/webpage"
	"demesne/runner/selftest"
	"demesne/server/docker"
	server "demesne/server/serve"
	"demesne/server/sshserver"
	"demesne/server/trust"
	"demesne/session/kubernetes"
	cluster "demesne/session/kubernetes/worker"
	"demesne/session/project"
	ray "demesne/session/ray/worker"
	"demesne/session/vault"
)

const programName = "demesne-frontend"

func main() {
	name, isLink := strings.CutPrefix(filepath.Base(os.Args[0]), "demesne-")
	if start := frontend(name); isLink && start != nil {
		start()
		return
	}
	program := cmdline.Program{Name: programName, Summary: "serve sandboxes to other programs and to models",
		About: "Serves sandboxes: by MCP, HTTP, agents, notebooks. demesne starts this program for mcp, serve, agent, kernel, notebook, repl, secret, ssh and trust."}
	if text, ok := program.Answer(os.Args[1:]); ok {
		os.Stdout.WriteString(text)
		return
	}
	if len(os.Args) > 1 {
		if start := frontend(os.Args[1]); start != nil {
			// ps shows this name: each frontend keeps the name that its link would have.
			os.WriteFile("/proc/self/comm", []byte("demesne-"+os.Args[1]), 0)
			os.Args = append([]string{"demesne-" + os.Args[1]}, os.Args[2:]...)
			start()
			return
		}
	}
	fmt.Fprintln(os.Stderr, programName+": demesne starts this program; users do not")
	os.Exit(2)
}

// frontend returns the main function of a frontend, or nil.
func frontend(name string) func() {
	switch name {
	case "mcp":
		return mcp.Main
	case "serve":
		return server.Main
	case "agent":
		return headless.Main
	case "kernel", "notebook", "repl":
		return func() { jupyter.Main(name) }
	case "selftest":
		return selftest.Main
	case kubernetes.Name:
		return cluster.Main
	case "ray":
		return ray.Main
	case "docker":
		return docker.Main
	case webpage.Name:
		return webpage.Main
	case "vault":
		return vault.Main
	case "ssh":
		return sshserver.Main
	case project.Frontend:
		return trust.Main
	}
	return nil
}
