package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/kernels/kernelcmd"
	"demesne/runner/client"
)

// Kernels returns kernel, notebook and repl.
func Kernels() (all []app.Verb) {
	for i, line := range new(kernelcmd.Options).Commands() {
		flags := func() cmdline.Flags { return new(kernelcmd.Options).Commands()[i].Flags }
		all = append(all, app.External(line, flags, client.FrontendProgram, line.Name))
	}
	return all
}
