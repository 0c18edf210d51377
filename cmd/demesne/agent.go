package main

import (
	"errors"

	"demesne/cmd/internal/cli"
)

func agentCommand() command {
	return command{
		Command: cli.Command{
			Name: "agent", Usage: []string{"run [flags] PROMPT"},
			Summary: "run a coding agent in a sandbox",
			About:   "Runs a coding agent in a sandbox. demesne agent run --help explains the flags.",
			Examples: []cli.Example{
				{Says: "get an answer", Line: `demesne agent run "What does this repository do?" --in ~/src/app`},
			},
			Operand: cli.Argv, Words: []string{"run"}, Topics: []cli.Topic{agentRunTopic()},
		},
		flags: noFlags, run: cmdAgent,
	}
}

func cmdAgent(a *app, o *options, args []string) (int, error) {
	if len(args) > 0 && args[0] == "run" {
		return executeAgent(args)
	}
	return 0, hinted(errors.New("no agent given"), "demesne agent run PROMPT")
}
