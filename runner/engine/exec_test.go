package engine

import (
	"bytes"
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/pid1/pid1api"
	"demesne/runner/store"
)

// runsIn returns a sandbox that has been made, the only one of its engine.
func runsIn(t *testing.T) *sandbox {
	t.Helper()
	e := &Engine{sandboxes: map[string]*sandbox{}, recent: map[execKey]*execution{}, idle: make(chan struct{}), accepting: true}
	var err error
	if e.state, err = store.OpenHistory(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s := e.newSandbox("s", runner.Spec{Lifetime: runner.Persistent})
	e.sandboxes[s.id] = s
	close(s.built)
	return s
}

// TestSilentInit checks that a sandbox ends if its PID 1 does not answer.
func TestSilentInit(t *testing.T) {
	s := runsIn(t)
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s.guest = ipc.NewPeer(ipc.NewConn(ours), s.fromGuest)
	defer s.guest.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	err = s.askGuest(ctx, pid1api.OpSignal, pid1api.Signal{}, nil, nil)
	if ipc.AsError(err).Code != ipc.CodeGone {
		t.Errorf("error %v", err)
	}
	<-s.e.idle // closed after it is forgotten, on disk too
	if s.verdict != runner.Lost {
		t.Errorf("it ended as %q", s.verdict)
	}
}

// TestHostileInit covers P24. A PID 1 under a workload's control ends its sandbox, whatever it sends and reads, and
// no call about it takes longer than its deadline.
func TestHostileInit(t *testing.T) {
	garbage := func(packet []byte) func(*os.File) {
		return func(f *os.File) {
			for {
				if _, err := f.Write(packet); err != nil {
					return
				}
			}
		}
	}
	for name, does := range map[string]func(*os.File){
		"reads nothing":              func(*os.File) {},
		"speaks no JSON":             garbage([]byte("\x00garbage")),
		"sends half a message":       garbage(append([]byte{1}, bytes.Repeat([]byte{'['}, 60<<10)...)),
		"sends empty fragments":      garbage([]byte{1}),
		"sends events of nothing":    garbage([]byte("\x00{\"op\":\"guest.exited\",\"body\":{\"exec\":77}}")),
		"makes calls":                garbage([]byte("\x00{\"op\":\"guest.exited\",\"id\":5,\"body\":[]}")),
		"answers an unknown request": garbage([]byte("\x00{\"id\":99}")),
		"answers nonsense":           garbage([]byte("\x00{\"id\":1,\"body\":[]}")),
	} {
		t.Run(name, func(t *testing.T) {
			s := runsIn(t)
			ours, theirs, err := ipc.Pair()
			if err != nil {
				t.Fatal(err)
			}
			var acts sync.WaitGroup
			defer acts.Wait()
			defer theirs.Close()
			acts.Go(func() { does(theirs) })
			s.guest = ipc.NewPeer(ipc.NewConn(ours), s.fromGuest)
			acts.Go(func() { s.guest.Serve(); s.guest.Close() })
			defer s.guest.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			// More bytes than the socket holds, and more than one call.
			large := pid1api.Exec{Argv: []ipc.Bytes{make([]byte, 1<<20)}}
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					if err := s.askGuest(ctx, pid1api.OpExec, large, nil, &pid1api.Executed{}); err == nil {
						t.Error("an answer")
					}
				})
			}
			calls.Wait()
			s.terminate(runner.Lost, "")
			<-s.e.idle // closed after it is forgotten, on disk too
		})
	}
}

// TestLyingInit covers P24. A PID 1 claims to have killed a command and does not report the command's end.
func TestLyingInit(t *testing.T) {
	s := runsIn(t)
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	s.guest = ipc.NewPeer(ipc.NewConn(ours), s.fromGuest)
	defer s.guest.Close()
	go s.guest.Serve()
	var liar *ipc.Peer
	liar = ipc.NewPeer(ipc.NewConn(theirs), func(m *ipc.Message) { liar.Reply(m, struct{}{}, nil); m.Close() })
	defer liar.Close()
	go liar.Serve()
	x, err := s.register(nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	x.expire(time.Millisecond)
	<-x.done
	<-s.e.idle
	if x.result.Reason != runner.TimedOut || s.verdict != runner.Lost {
		t.Errorf("result %+v, sandbox %q", x.result, s.verdict)
	}
}

// TestEndedBounded checks that the number of remembered results is bounded.
func TestEndedBounded(t *testing.T) {
	s := runsIn(t)
	for range 3 * endedMax {
		x, err := s.register(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		x.finish(&pid1api.Exited{Exec: x.id})
	}
	if n := len(s.e.recent); n > endedMax || len(s.e.ended) > endedMax {
		t.Errorf("%d commands are remembered, %d in order", n, len(s.e.ended))
	}
	if x, err := s.e.findExec(api.ExecTarget{Sandbox: s.id, Exec: s.next}); err != nil || x.result == nil {
		t.Errorf("the last one: %v", err)
	}
}
