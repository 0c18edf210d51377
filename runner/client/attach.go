package client

import (
	"context"

	"demesne/runner/api"
)

// Attach takes over the terminal of the command with one that was started last, once whoever had it has gone. Before it
// can be read, what was written meanwhile comes in recent. It is an error with ipc.CodeUnknown if no command has a
// terminal, and with ipc.CodeBusy if somebody has that.
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
