package main

import (
	"demesne/cmd/internal/servecmd"
	"demesne/internal/cmdline"
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
