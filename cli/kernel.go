package cli

import (
	"demesne/internal/cmdline"
	"demesne/kernels/kernelcmd"
)

// kernelProgram runs code in kernels. It is a separate program because it links ZeroMQ.
const kernelProgram = "demesne-kernel"

// kernelCommands returns kernel, notebook and repl.
func kernelCommands() (all []command) {
	for i, line := range kernelcmd.Commands(&kernelcmd.Options{}) {
		line.Raw, line.Flags = true, nil
		all = append(all, command{
			Command: line,
			flags:   func(*options) cmdline.Flags { return kernelcmd.Commands(&kernelcmd.Options{})[i].Flags },
			run: func(_ *app, _ *options, args []string) (int, error) {
				return executeProgram(kernelProgram, append([]string{line.Name}, args...))
			},
		})
	}
	return all
}
