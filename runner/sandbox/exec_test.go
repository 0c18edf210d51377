package sandbox

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

// running is a sandbox that has been made. forgotten is closed after its end is recorded, on disk too.
type running struct {
	*Sandbox
	forgotten chan struct{}
}

func newRunning(t *testing.T) running {
	t.Helper()
	m := &Machine{}
	var err error
	if m.History, err = store.OpenHistory(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	forgotten := make(chan struct{})
	env := Env{Machine: m, Results: &Results{}, Forgotten: func(*Sandbox) { close(forgotten) }}
	s := New(env, "s", runner.Spec{Lifetime: runner.Persistent})
	s.Made(nil)
	return running{s, forgotten}
}

// TestSilentInit checks that a sandbox ends if its PID 1 does not answer.
func TestSilentInit(t *testing.T) {
	s := newRunning(t)
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s.init.peer = ipc.NewPeer(ipc.NewConn(ours), s.fromInit)
	defer s.init.peer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	err = s.call(ctx, pid1api.OpSignal, pid1api.Signal{}, nil, nil)
	if ipc.AsError(err).Code != ipc.CodeGone {
		t.Errorf("error %v", err)
	}
	<-s.forgotten
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
		"reads nothing":           func(*os.File) {},
		"speaks no JSON":          garbage([]byte("\x00garbage")),
		"sends half a message":    garbage(append([]byte{1}, bytes.Repeat([]byte{'['}, 60<<10)...)),
		"sends empty fragments":   garbage([]byte{1}),
		"sends events of nothing": garbage([]byte("\x00{\"op\":\"guest.exited\",\"body\":{\"exec\":77}}")),
		"makes calls":             garbage([]byte("\x00{\"op\":\"guest.exited\",\"id\":5,\"body\":[]}")),
		"answers an unknown call": garbage([]byte("\x00{\"id\":99}")),
		"answers nonsense":        garbage([]byte("\x00{\"id\":1,\"body\":[]}")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newRunning(t)
			ours, theirs, err := ipc.Pair()
			if err != nil {
				t.Fatal(err)
			}
			var acts sync.WaitGroup
			defer acts.Wait()
			defer theirs.Close()
			acts.Go(func() { does(theirs) })
			s.init.peer = ipc.NewPeer(ipc.NewConn(ours), s.fromInit)
			acts.Go(func() { s.init.peer.Serve(); s.init.peer.Close() })
			defer s.init.peer.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			// More bytes than the socket holds, and more than one call.
			large := pid1api.Exec{Argv: []ipc.Bytes{make([]byte, 1<<20)}}
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					if err := s.call(ctx, pid1api.OpExec, large, nil, &pid1api.Executed{}); err == nil {
						t.Error("an answer")
					}
				})
			}
			calls.Wait()
			s.terminate(runner.Lost, "")
			<-s.forgotten
		})
	}
}

// TestLyingInit covers P24. A PID 1 claims to have killed a command and does not report the command's end.
func TestLyingInit(t *testing.T) {
	s := newRunning(t)
	ours, theirs, err := ipc.Pair()
	if err != nil {
		t.Fatal(err)
	}
	s.init.peer = ipc.NewPeer(ipc.NewConn(ours), s.fromInit)
	defer s.init.peer.Close()
	go s.init.peer.Serve()
	var liar *ipc.Peer
	liar = ipc.NewPeer(ipc.NewConn(theirs), func(m *ipc.Message) { liar.Reply(m, struct{}{}, nil); m.Close() })
	defer liar.Close()
	go liar.Serve()
	x, err := s.register(nil, api.ExecRequest{})
	if err != nil {
		t.Fatal(err)
	}
	x.expire(time.Millisecond)
	<-x.done
	<-s.forgotten
	if x.result.Reason != runner.TimedOut || s.verdict != runner.Lost {
		t.Errorf("result %+v, sandbox %q", x.result, s.verdict)
	}
}

// asker is a caller that checks the state of its sandbox when it receives a result.
type asker struct {
	Caller
	s     *Sandbox
	early chan bool
}

func (a asker) Event(ipc.Op, any) error { a.early <- !a.s.Done(); return nil }

// TestResultsAfterTheEnd checks that the results of commands that ended with their sandbox are sent when it is done: a
// caller that has its result finds the name free, and no such sandbox in the list.
func TestResultsAfterTheEnd(t *testing.T) {
	const commands = 1000
	s := newRunning(t)
	a := asker{s: s.Sandbox, early: make(chan bool, commands)}
	for range commands {
		if _, err := s.register(a, api.ExecRequest{Tag: 1}); err != nil {
			t.Fatal(err)
		}
	}
	s.terminate(runner.Lost, "")
	for range commands {
		if <-a.early {
			t.Fatal("a result came before the end of the sandbox")
		}
	}
}

// TestEndedBounded checks that the number of remembered results is bounded.
func TestEndedBounded(t *testing.T) {
	s := newRunning(t)
	for range 3 * endedMax {
		x, err := s.register(nil, api.ExecRequest{})
		if err != nil {
			t.Fatal(err)
		}
		x.finish(&pid1api.Exited{Exec: x.id})
	}
	if n := len(s.env.Results.all); n > endedMax || len(s.env.Results.ended) > endedMax {
		t.Errorf("%d commands are remembered, %d in order", n, len(s.env.Results.ended))
	}
	if x, err := s.env.Results.Find(api.ExecTarget{Sandbox: s.id, Exec: s.commands.next}); err != nil || x.result == nil {
		t.Errorf("the last one: %v", err)
	}
}
