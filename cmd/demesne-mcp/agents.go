package main

import (
	"context"
	"errors"

	"demesne/mcp/backend"
)

// errNoAgents is the error of a server without agents.
var errNoAgents = errors.New("agents are not available")

// Agent is not available yet.
func (f *face) Agent(context.Context, backend.AgentRequest, backend.Callbacks) (*backend.AgentResult, error) {
	return nil, errNoAgents
}

// StartAgent is not available yet.
func (f *face) StartAgent(context.Context, backend.AgentRequest) (*backend.Job, error) {
	return nil, errNoAgents
}

// Usage is not available yet.
func (f *face) Usage(context.Context, string, string) (*backend.UsageReport, error) {
	return nil, errNoAgents
}
