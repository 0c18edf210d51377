package client

import (
	"context"
	"encoding/json"
	"os"
	"syscall"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// told returns the message that reports the end of a command.
func told(t *testing.T, body any) *ipc.Message {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return &ipc.Message{Op: api.OpEnded, Body: raw}
}

// TestEndings: an end is delivered once, to the caller that expects it. Unexpected or invalid messages are ignored.
func TestEndings(t *testing.T) {
	var e endings
	one, two := e.expect(), e.expect()
	if one.tag == two.tag || one.tag == 0 {
		t.Fatalf("tags %d and %d", one.tag, two.tag)
	}
	result := &runner.Result{ExitCode: 3}
	for _, body := range []any{api.ExecEnded{Tag: 77, Result: result}, api.ExecEnded{Tag: one.tag}, "text"} {
		e.told(told(t, body))
	}
	select {
	case <-one.done:
		t.Error("ended by a message that does not say so")
	default:
	}
	e.told(told(t, api.ExecEnded{Tag: two.tag, Result: result}))
	e.told(told(t, api.ExecEnded{Tag: two.tag, Result: result}))
	<-two.done
	if two.result.ExitCode != 3 || e.take(one.tag) != one || e.take(one.tag) != nil || len(e.open) != 0 {
		t.Errorf("%+v, and %d left", two.result, len(e.open))
	}
}

// TestAccountSettle: a receipt is decoded only if it has changed.
func TestAccountSettle(t *testing.T) {
	var a account
	if d := a.known(); *d != "" {
		t.Errorf("known before: %q", *d)
	}
	first, err := a.settle(&api.ExecReply{Digest: "d1", Receipt: json.RawMessage(`{"level":"full"}`)})
	if err != nil || first.Level != runner.LevelFull || *a.known() != "d1" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := a.settle(&api.ExecReply{Digest: "d1"}); again != first || err != nil {
		t.Errorf("%p is not %p, %v", again, first, err)
	}
	if _, err := a.settle(&api.ExecReply{Digest: "d2", Receipt: json.RawMessage(`[]`)}); err == nil || *a.known() != "d1" {
		t.Errorf("no receipt at all: %v, %q", err, *a.known())
	}
}

// TestRun: one call makes a sandbox and starts its command; a failed call leaves nothing behind.
func TestRun(t *testing.T) {
	c := newCorner(t)
	client, ctx := c.connect(), context.Background()
	defer client.Close()
	out := c.TempDir()
	s, p, err := client.Run(ctx, runner.Spec{Out: out}, runner.Command{Argv: []string{"sh", "-c", "echo x > /out/f; exit 7"}, Account: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // Wait may be repeated
		r, err := p.Wait(ctx)
		if err != nil || r.ExitCode != 7 || r.Sandbox != s.ID || r.Receipt == nil || r.Receipt.Sandbox != s.ID {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if text, err := os.ReadFile(out + "/f"); string(text) != "x\n" {
		t.Errorf("/out/f: %q, %v", text, err)
	}
	var r runner.Result // any caller that knows the number may wait
	if err := client.peer.Call(ctx, api.OpWait, api.ExecTarget{Sandbox: s.ID, Exec: p.exec}, nil, &r); err != nil || r.ExitCode != 7 {
		t.Errorf("wait: %+v, %v", r, err)
	}
	for want, call := range map[ipc.Code]func() error{
		ipc.CodeCommandNotFound: func() error {
			_, _, err := client.Run(ctx, runner.Spec{Out: out}, runner.Command{Argv: []string{"no-such-program"}})
			return err
		},
		ipc.CodeInvalid: func() error {
			_, _, err := client.Run(ctx, runner.Spec{Out: out, Lifetime: runner.Persistent}, runner.Command{Argv: []string{"true"}})
			return err
		},
	} {
		if err := call(); code(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c.eventually("nothing to be left", func() bool {
		all, err := client.List(ctx)
		return err == nil && len(all) == 0
	})
}

// TestRunnerGone: a command whose runner was killed is Lost. A call that the runner never received may be repeated.
func TestRunnerGone(t *testing.T) {
	c := newCorner(t)
	client, ctx := c.connect(), context.Background()
	_, p, err := client.Run(ctx, runner.Spec{Out: c.TempDir()}, runner.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	c.kill(client)
	if r, err := p.Wait(ctx); err != nil || r.Reason != runner.Lost {
		t.Errorf("%+v, %v", r, err)
	}
	if _, _, err := client.Run(ctx, runner.Spec{Out: c.TempDir()}, runner.Command{Argv: []string{"true"}}); code(err) != ipc.CodeGone {
		t.Errorf("run: %v", err)
	}
}

// TestRunnerYoung: a runner that is killed before its greeting yields CodeGone like any other. For a runner that
// fails to start, the error is the first line of its log.
func TestRunnerYoung(t *testing.T) {
	c := newCorner(t)
	for range 10 {
		client := c.connect()
		c.kill(client)
		if _, err := client.List(t.Context()); code(err) != ipc.CodeGone {
			t.Errorf("list: %v", err)
		}
		if _, _, err := client.Run(t.Context(), runner.Spec{Out: c.TempDir()}, runner.Command{Argv: []string{"true"}}); code(err) != ipc.CodeGone {
			t.Errorf("run: %v", err)
		}
		client.Close()
	}
	silent := &Client{dir: &runDir{path: t.TempDir(), key: "k"}}
	if err := os.WriteFile(silent.dir.file(".log"), []byte("demesne-runner: no boot\nmore"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := silent.lost(ipc.ErrClosed); code(err) != ipc.CodeGone {
		t.Errorf("greeted: %v", err)
	}
	silent.young.Store(true)
	if err := silent.lost(ipc.ErrClosed); err == nil || err.Error() != "start runner: demesne-runner: no boot" {
		t.Errorf("not greeted: %v", err)
	}
}

// TestExecOpens: Exec opens a sandbox by its name or id, and restarts one that has lost its processes.
func TestExecOpens(t *testing.T) {
	c := newCorner(t)
	client := c.connect()
	defer client.Close()
	made := c.create(client, runner.Spec{Name: "box"})
	exec := func(name string) *Sandbox {
		s, p, err := client.Exec(t.Context(), name, runner.Command{Argv: []string{"sh", "-c", "exit 7"}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := p.Wait(t.Context()); err != nil || r.ExitCode != 7 || r.Restarted != s.Restarted || s.ID != made.ID || s.Out != made.Out || s.Level != made.Level {
			t.Errorf("%q: %+v, %v; %+v", name, r, err, s)
		}
		return s
	}
	if exec("box").Restarted || exec(made.ID).Restarted {
		t.Error("restarted, and was alive")
	}
	if err := client.Stop(t.Context(), made.ID, 0); err != nil {
		t.Fatal(err)
	}
	if !exec("box").Restarted || exec("box").Restarted {
		t.Error("not restarted, or twice")
	}
	for want, argv := range map[ipc.Code][]string{ipc.CodeCommandNotFound: {"no-such-program"}, ipc.CodeNoSuchSandbox: {"true"}} {
		name := map[ipc.Code]string{ipc.CodeCommandNotFound: "box", ipc.CodeNoSuchSandbox: "no-such-box"}[want]
		if _, _, err := client.Exec(t.Context(), name, runner.Command{Argv: argv}); code(err) != want {
			t.Errorf("%q in %q: %v", argv, name, err)
		}
	}
}

// TestExecAccount: the receipt is sent with the first command that asks for it, and later commands return it too.
func TestExecAccount(t *testing.T) {
	c := newCorner(t)
	client, ctx := c.connect(), context.Background()
	defer client.Close()
	s := c.create(client, runner.Spec{})
	exec := func(account bool) *runner.Result {
		p, err := s.Exec(ctx, runner.Command{Argv: []string{"true"}, Account: account})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := exec(true)
	if first.Receipt == nil || first.Receipt.Sandbox != s.ID || exec(true).Receipt != first.Receipt || exec(false).Receipt != nil {
		t.Errorf("%+v", first.Receipt)
	}
	if err := client.Stop(ctx, s.ID, 0); err != nil {
		t.Fatal(err)
	}
	if again := exec(true); !again.Restarted || again.Receipt == nil {
		t.Errorf("after a restart: %+v", again)
	}
}

// TestExecCancelled: a cancelled Exec either returns the command or starts none, so no unknown command keeps running.
func TestExecCancelled(t *testing.T) {
	c, client, s := withOne(t)
	for how, exec := range map[string]func(context.Context, runner.Command) (*Process, error){
		"in a sandbox": s.Exec,
		"and finds it": func(ctx context.Context, cmd runner.Command) (*Process, error) {
			_, p, err := client.Exec(ctx, s.ID, cmd)
			return p, err
		},
	} {
		t.Run(how, func(t *testing.T) {
			for round := range 40 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(round)*100*time.Microsecond, cancel)
				p, err := exec(ctx, runner.Command{Argv: []string{"sleep", "1000"}})
				if err != nil {
					continue
				}
				if err := p.Signal(syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				if _, err := p.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if out, _ := c.sh(s, "pgrep -c sleep; true"); out != "0" {
				t.Errorf("%s run on", out)
			}
		})
	}
}
