package client

import (
	"context"

	"demesne/runner/api"
)

// Attach takes over the terminal of the most recently started command that has one, after its former user has
// detached. recent holds the output written in between, which precedes what is read from the terminal. The error has
// ipc.NoSuchSandbox if no command has a terminal, and ipc.CodeBusy if another caller uses it.
func (s *Sandbox) Attach(ctx context.Context) (p *Process, recent []byte, err error) {
	m, err := s.client.peer.CallMessage(ctx, api.OpAttach, api.Target{Sandbox: s.ID}, nil)
	if err != nil {
		return nil, nil, s.client.lost(err)
	}
	defer m.Close()
	var reply api.Attached
	if err := m.Decode(&reply); err != nil {
		return nil, nil, err
	}
	return &Process{sandbox: s, exec: reply.Exec, tty: m.File("tty")}, reply.Recent, nil
}
