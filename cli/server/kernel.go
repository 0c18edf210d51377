package server

import (
	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/kernels/kernelcmd"
)

// kernelProgram runs code in kernels. It is a separate program because it links ZeroMQ.
const kernelProgram = "demesne-kernel"

// Kernels returns kernel, notebook and repl.
func Kernels() (all []app.Verb) {
	for i, line := range kernelcmd.Commands(&kernelcmd.Options{}) {
		flags := func() cmdline.Flags { return kernelcmd.Commands(&kernelcmd.Options{})[i].Flags }
		all = append(all, app.External(line, flags, kernelProgram, line.Name))
	}
	return all
}
