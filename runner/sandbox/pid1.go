package sandbox

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"demesne/runner"
	"demesne/runner/container"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/receipt"
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

	// What was verified while the sandbox was made, for the receipt.
	start      receipt.Start
	facts      pid1api.Facts
	namespaces []runner.Layer
}

// serveInit serves the messages of PID 1, and ends the sandbox when PID 1 ends by itself.
func (s *Sandbox) serveInit(init *container.Init) {
	s.init.pid, s.init.mounts, s.init.start = init.PID, init.Mounts, init.Start
	s.init.peer = ipc.NewPeer(init.Socket, s.fromInit)
	go func() {
		s.init.peer.Serve()
		<-s.built
		s.mu.Lock()
		ending := s.ending
		s.mu.Unlock()
		switch {
		case ending:
		case s.group.OOMKilled():
			s.terminate(runner.OOM, "the memory limit was reached")
		default:
			s.terminate(runner.Lost, "PID 1 of the sandbox was killed")
		}
	}()
}

// restrict makes PID 1 restrict itself and keeps what PID 1 verified.
func (p *pid1) restrict(setup pid1api.Setup) error {
	ctx, cancel := context.WithTimeout(context.Background(), initTimeout)
	defer cancel()
	if err := p.peer.Call(ctx, pid1api.OpSetup, setup, nil, &p.facts); err != nil {
		return fmt.Errorf("restrict sandbox: %w", err)
	}
	return nil
}

// call sends PID 1 a request about a command. A sandbox whose PID 1 does not answer ends, because no time limit
// would be enforced any more. A workload can cause that: a SIGSTOP to a process between fork and exec makes PID 1
// wait (vfork(2)).
func (s *Sandbox) call(ctx context.Context, op ipc.Op, body any, files ipc.Files, reply any) error {
	err := s.init.peer.Call(ctx, op, body, files, reply)
	if errors.Is(err, context.DeadlineExceeded) {
		const why = "PID 1 of the sandbox does not answer"
		go s.terminate(runner.Lost, why)
		err = ipc.Errorf(ipc.CodeGone, "sandbox %s: %s", s.id, why)
	}
	return err
}

// explainInit explains a failure to execute PID 1 for lack of a dynamic loader. A demesne-init built by a plain go
// install may need one, and an image need not contain it.
func (i *identity) explainInit(err error) error {
	if i.spec.Rootfs == nil {
		return err
	}
	program, openErr := elf.Open(i.on.Boot.Init)
	if openErr != nil {
		return err
	}
	defer program.Close()
	if !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return err
	}
	return &ipc.Error{
		Code: ipc.CodeInternal,
		Text: fmt.Sprintf("execute %q in an image: not statically linked: %v", i.on.Boot.Init, err),
		Hint: "make build, or CGO_ENABLED=0 go install ./cmd/demesne-init",
	}
}
