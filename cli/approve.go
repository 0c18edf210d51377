package cli

import (
	"demesne/internal/cmdline"
	"demesne/server/servecmd"
)

func approveCommand() command {
	line := *servecmd.ApproveCommand(&servecmd.ApproveOptions{})
	line.Raw, line.Flags = true, nil
	return command{
		Command: line,
		flags:   func(*options) cmdline.Flags { return servecmd.ApproveFlags(&servecmd.ApproveOptions{}) },
		run: func(_ *app, _ *options, args []string) (int, error) {
			return executeProgram(serverProgram, append([]string{"approve"}, args...))
		},
	}
}
