package session

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
	"demesne/session/events"
)

type callerName struct{}

// endings is an Engine whose commands end with the given result.
type endings struct {
	single
	result runner.Result
	reason error
}

func (e *endings) connect(context.Context, client.Options) (Engine, error) { return e, nil }

func (e *endings) Create(ctx context.Context, spec runner.Spec) (*Sandbox, error) {
	if e.reason != nil {
		return nil, e.reason
	}
	sb, err := e.single.Create(ctx, spec)
	exec := sb.Exec
	sb.Exec = func(ctx context.Context, cmd runner.Command) (Process, error) {
		p, err := exec(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return ending{p, e.result}, nil
	}
	return sb, err
}

func (e *endings) Open(ctx context.Context, _ string) (*Sandbox, error) {
	return e.Create(ctx, runner.Spec{})
}

func (e *endings) Remove(context.Context, string) error { return nil }

type ending struct {
	Process
	result runner.Result
}

func (p ending) Wait(ctx context.Context) (*runner.Result, error) {
	p.Process.Wait(ctx)
	return &p.result, nil
}

// watched returns a Service over e, and a function that returns its events as text, with the caller of each.
func watched(t *testing.T, e *endings) (*Service, func() []string) {
	t.Helper()
	var (
		mu  sync.Mutex
		all []string
	)
	s := New(Options{OutputRoot: t.TempDir(), Connect: e.connect, Observe: func(ctx context.Context, ev events.Event) {
		mu.Lock()
		defer mu.Unlock()
		line := fmt.Sprint(ev.Type, " ", ev.Sandbox)
		for _, name := range []string{"command", "exit_code", "limit", "name", "action", "error"} {
			if v := ev.Detail[name]; v != "" {
				line += " " + name + "=" + v
			}
		}
		if who, ok := ctx.Value(callerName{}).(string); ok {
			line += " by " + who
		}
		all = append(all, line)
	}})
	t.Cleanup(s.Close)
	return s, func() []string { mu.Lock(); defer mu.Unlock(); done := all; all = nil; return done }
}

// TestObserve checks that each step of a sandbox's life is reported once, with the values of its call's context, and that
// a command's end says how it ended.
func TestObserve(t *testing.T) {
	e := &endings{}
	s, seen := watched(t, e)
	ctx := context.WithValue(t.Context(), callerName{}, "me")
	sb, err := s.Create(ctx, CreateOptions{}, Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	if got := seen(); len(got) != 1 || got[0] != "session.created sb by me" {
		t.Errorf("%q", got)
	}
	for _, c := range []struct {
		result runner.Result
		want   []string
	}{
		{runner.Result{Reason: runner.Exited}, []string{"execution.completed sb exit_code=0 by me"}},
		{runner.Result{Reason: runner.Exited, ExitCode: 3}, []string{"execution.failed sb exit_code=3 by me"}},
		{runner.Result{Reason: runner.TimedOut, ExitCode: 124}, []string{"execution.timeout sb exit_code=124 by me"}},
		{runner.Result{Reason: runner.OOM, ExitCode: 137}, []string{"resource.exceeded sb limit=oom by me", "execution.failed sb exit_code=137 by me"}},
		{runner.Result{Reason: runner.Exited, Denied: []runner.Blocked{{Host: "evil.test", Port: 443}}},
			[]string{"egress.denied sb name=evil.test by me", "execution.completed sb exit_code=0 by me"}},
	} {
		e.result = c.result
		if _, err := s.Exec(ctx, sb.ID, RunOptions{Command: runner.Command{Argv: []string{"echo", "0"}}}, Callbacks{}); err != nil {
			t.Fatal(err)
		}
		if got, want := seen(), append([]string{"execution.started sb command=echo 0 by me"}, c.want...); !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", c.result.Reason, got, want)
		}
	}
	s.Exec(ctx, sb.ID, RunOptions{Command: runner.Command{Argv: []string{"missing"}}}, Callbacks{})
	if got := seen(); len(got) != 1 || !strings.HasPrefix(got[0], "execution.failed sb command=missing error=") {
		t.Errorf("%q", got)
	}
	s.Remove(ctx, sb.ID)
	if got := seen(); len(got) != 1 || got[0] != "session.killed sb action=remove by me" {
		t.Errorf("%q", got)
	}
	e.reason = ipc.Errorf(ipc.CodeTooMuch, "too many")
	if _, err := s.Create(ctx, CreateOptions{}, Callbacks{}); err == nil {
		t.Error("created")
	}
	if got := seen(); len(got) != 1 || got[0] != "resource.exceeded  error=too many by me" {
		t.Errorf("%q", got)
	}
}

// TestObserveQuestion checks that a question is reported, and the answer or its absence.
func TestObserveQuestion(t *testing.T) {
	s, seen := watched(t, &endings{})
	s.question(runner.Question{Sandbox: "sb", Name: "a.test", Port: 443})
	if got, want := seen(), []string{"egress.requested sb name=a.test", "egress.denied sb name=a.test"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestObserveSecrets checks that no event has the value of a credential, in any form, also where a text is shortened, and
// that using one is reported by its name.
func TestObserveSecrets(t *testing.T) {
	const value = "s3cret/value+of-a-token"
	s, seen := watched(t, &endings{})
	c := CreateOptions{Egress: Egress{Secrets: []runner.Secret{{Name: "TOKEN", Value: value, Host: "api.test"}}}}
	sb, err := s.Create(t.Context(), c, Callbacks{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		value, base64.StdEncoding.EncodeToString([]byte("user:" + value)), "s3cret%2Fvalue%2Bof-a-token", strings.Repeat("x", commandShown-10) + value,
	} {
		s.Exec(t.Context(), sb.ID, RunOptions{Command: runner.Command{Argv: []string{"echo", text, "0"}}}, Callbacks{})
	}
	all := strings.Join(seen(), "\n")
	for _, bad := range []string{"s3cret", "czNjcmV0", "value%2Bof"} {
		if strings.Contains(all, bad) {
			t.Errorf("%s in %s", bad, all)
		}
	}
	if !strings.Contains(all, "vault.accessed sb name=TOKEN") {
		t.Errorf("%s", all)
	}
}
