package main

import "demesne/runner"

type watched struct{}

func (t *agentTerminal) protect() ([]runner.Mount, error) { return nil, nil }

func (t *agentTerminal) tellExecutable() {}
