package sandbox

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"time"

	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
)

// initTimeout bounds the conversation with PID 1 while a sandbox is made. It catches a stalled machine and is not a
// time budget.
const initTimeout = 30 * time.Second

// pid1 is the part of a sandbox that talks to its PID 1. It does not change after the sandbox is made, and peer is
// safe for concurrent use.
type pid1 struct {
	pid    int      // in the runner's pid namespace
	mounts *os.File // its mount namespace
	peer   *ipc.Peer

	// Facts that were verified while the sandbox was made, for the receipt.
	start      container.Start
	facts      pid1api.Facts
	namespaces []runner.Layer
}

// restrict makes PID 1 restrict itself and keeps what PID 1 verified. listener is nil unless system calls are supervised.
func (p *pid1) restrict(setup pid1api.Setup) (listener *os.File, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	m, err := p.peer.CallMessage(ctx, pid1api.OpSetup, setup, nil)
	if err == nil {
		defer m.Close()
		err = m.Decode(&p.facts)
	}
	if err != nil {
		return nil, fmt.Errorf("restrict sandbox: %w", err)
	}
	return m.File(pid1api.FileListener), nil
}

// probe makes PID 1 test that the runner performs system calls for it.
func (p *pid1) probe() error {
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	return p.peer.Call(ctx, pid1api.OpProbe, struct{}{}, nil, nil)
}

// explainInit explains a failure to execute PID 1 for lack of a dynamic loader. A demesne-init built by a plain go
// install may need one, and an image need not contain it.
func (i *identity) explainInit(err error) error {
	if i.spec.Rootfs == nil {
		return err
	}
	program, openErr := elf.Open(i.machine.Boot.Init)
	if openErr != nil {
		return err
	}
	defer program.Close()
	if !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return err
	}
	return &ipc.Error{
		Code: ipc.CodeInternal,
		Text: fmt.Sprintf("execute %q in an image: not statically linked: %v", i.machine.Boot.Init, err),
		Hint: "make build, or CGO_ENABLED=0 go install ./cmd/demesne-init",
	}
}
