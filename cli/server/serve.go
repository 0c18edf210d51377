package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/kernels/kernelcmd"
	"demesne/runner/client"
	"demesne/runner/selftest"
	"demesne/server/servecmd"
	"demesne/session/project"
)

// serveName is the frontend that serves HTTP APIs, and decides about requests for the host.
const serveName = "serve"

// Serve returns demesne serve.
func Serve() app.Verb {
	flags := func() cmdline.Flags { return servecmd.Flags(&servecmd.Options{}) }
	return app.External(*servecmd.Command(&servecmd.Options{}), flags, client.FrontendProgram, serveName)
}

// Kernels returns kernel, notebook and repl.
func Kernels() (all []app.Verb) {
	for i, line := range new(kernelcmd.Options).Commands() {
		flags := func() cmdline.Flags { return new(kernelcmd.Options).Commands()[i].Flags }
		all = append(all, app.External(line, flags, client.FrontendProgram, line.Name))
	}
	return all
}

// Approve returns demesne approve.
func Approve() app.Verb {
	flags := func() cmdline.Flags { return servecmd.ApproveFlags(&servecmd.ApproveOptions{}) }
	return app.External(*servecmd.ApproveCommand(&servecmd.ApproveOptions{}), flags, client.FrontendProgram, serveName, "approve")
}

// Deny returns demesne deny.
func Deny() app.Verb {
	flags := func() cmdline.Flags { return nil }
	return app.External(*servecmd.DenyCommand(), flags, client.FrontendProgram, serveName, "deny")
}

// SelfTest returns demesne selftest, which the program of frontends runs.
func SelfTest() app.Verb {
	flags := func() cmdline.Flags { return selftest.Command(&selftest.Options{}).Flags }
	return app.External(*selftest.Command(&selftest.Options{}), flags, client.FrontendProgram, "selftest")
}

// Trust returns demesne trust, which the program of frontends runs.
func Trust() app.Verb {
	flags := func() cmdline.Flags { return new(project.Options).Flags() }
	return app.External(*new(project.Options).Command(), flags, client.FrontendProgram, project.Frontend)
}
