package engine

import (
	"context"
	"testing"

	"demesne/runner"
	"demesne/runner/guestapi"
	"demesne/runner/protocol"
	"demesne/runner/state"
	"demesne/runner/wire"
)

// runsIn is a sandbox that has been made, of an engine that has no others.
func runsIn(t *testing.T) *sandbox {
	t.Helper()
	e := &Engine{boxes: map[string]*sandbox{}, recent: map[execKey]*execution{}, idle: make(chan struct{}), accepting: true}
	var err error
	if e.state, err = state.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s := e.newSandbox("s", runner.Spec{Lifetime: runner.Persistent})
	e.boxes[s.id] = s
	close(s.built)
	return s
}

// A PID 1 that was brought to answer nothing takes its sandbox along.
func TestSilentInit(t *testing.T) {
	s := runsIn(t)
	ours, theirs, err := wire.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s.guest = wire.NewPeer(wire.NewConn(ours), s.fromGuest)
	defer s.guest.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	err = s.askGuest(ctx, guestapi.OpSignal, guestapi.Signal{}, nil, nil)
	if wire.AsError(err).Code != wire.CodeGone {
		t.Errorf("error %v", err)
	}
	<-s.e.idle // it is forgotten, on disk too
	if s.verdict != runner.Lost {
		t.Errorf("it ended as %q", s.verdict)
	}
}

// What a runner remembers of commands that have ended does not grow with their number.
func TestEndedBounded(t *testing.T) {
	s := runsIn(t)
	for range 3 * endedMax {
		x, err := s.enrol(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		x.finish(&guestapi.Exited{Exec: x.id})
	}
	if n := len(s.e.recent); n > endedMax || len(s.e.ended) > endedMax {
		t.Errorf("%d commands are remembered, %d in order", n, len(s.e.ended))
	}
	if x, err := s.e.findExec(protocol.ExecTarget{Sandbox: s.id, Exec: s.next}); err != nil || x.result == nil {
		t.Errorf("the last one: %v", err)
	}
}
