package main

import (
	"demesne/cmd/internal/cli"
	"demesne/cmd/internal/servecmd"
)

func approveCommand() command {
	line := *servecmd.ApproveCommand(&servecmd.ApproveOptions{})
	line.Raw, line.Flags = true, nil
	return command{
		Command: line,
		flags:   func(*options) cli.Flags { return servecmd.ApproveFlags(&servecmd.ApproveOptions{}) },
		run: func(_ *app, _ *options, args []string) (int, error) {
			return executeProgram(serverProgram, append([]string{"approve"}, args...))
		},
	}
}
