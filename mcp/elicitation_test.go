package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"demesne/session"
	"demesne/session/operator"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// curious is a Backend whose scripts ask to reach several names, in sequence or concurrently.
type curious struct {
	desk
	names   int
	atOnce  bool
	allowed []bool
	ended   chan struct{}
}

func (e *curious) Script(ctx context.Context, r session.Request, w session.Callbacks) (*session.RunResult, error) {
	defer close(e.ended)
	e.allowed = make([]bool, e.names)
	var wg sync.WaitGroup
	for i := range e.names {
		ask := func() { e.allowed[i] = asked(w, fmt.Sprintf("n%d.test", i), nil) }
		if e.atOnce {
			wg.Go(ask)
		} else {
			ask()
		}
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return e.desk.Script(ctx, r, w)
}

// rounds returns a client that does not answer questions automatically, and its server.
func rounds(t *testing.T, e *curious) (*sdk.ClientSession, *Server) {
	e.ended = make(chan struct{})
	s, _ := serverFor(t, &e.desk)
	s.engine = e
	return clientOf(t, s, &sdk.ClientOptions{
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return nil, fmt.Errorf("asked while the call was under way")
		},
	}, severalRounds), s
}

// again calls sandbox_script, or repeats a call with answers to the questions of r.
func again(t *testing.T, cs *sdk.ClientSession, tool string, r *sdk.CallToolResult, action string) *sdk.CallToolResult {
	t.Helper()
	p := &sdk.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"command":"x","ask":true}`)}
	if r != nil {
		p.RequestState, p.InputResponses = r.RequestState, sdk.InputResponseMap{}
		for id := range r.InputRequests {
			if action != "" {
				p.InputResponses[id] = &sdk.ElicitResult{Action: action}
			}
		}
	}
	out, err := cs.CallTool(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRounds(t *testing.T) {
	for _, c := range []struct {
		name    string
		engine  *curious
		actions []string // one per round
		want    string
	}{
		{"none", &curious{}, nil, "[]"},
		{"one after another", &curious{names: 3}, []string{"accept", "decline", "accept"}, "[true false true]"},
		{"not answered", &curious{names: 2}, []string{"", "accept"}, "[false true]"},
		{"too many", &curious{names: 11}, []string{"accept", "accept", "accept", "accept", "accept", "accept", "accept", "accept", "accept"},
			"[true true true true true true true true true false false]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cs, _ := rounds(t, c.engine)
			r := again(t, cs, "sandbox_script", nil, "")
			for i, action := range c.actions {
				if !r.NeedsInput() || len(r.InputRequests) != 1 || len(r.Content) != 0 {
					t.Fatalf("round %d: %+v", i, r)
				}
				r = again(t, cs, "sandbox_script", r, action)
			}
			if r.NeedsInput() || r.IsError || fmt.Sprint(c.engine.allowed) != c.want {
				t.Errorf("%+v, allowed %v, want %s", r, c.engine.allowed, c.want)
			}
		})
	}
}

// TestRoundsAtOnce checks that concurrent questions may arrive in one round or in several. Each
// is asked once.
func TestRoundsAtOnce(t *testing.T) {
	e := &curious{names: 5, atOnce: true}
	cs, _ := rounds(t, e)
	asked := 0
	r := again(t, cs, "sandbox_script", nil, "")
	for ; r.NeedsInput(); r = again(t, cs, "sandbox_script", r, "accept") {
		asked += len(r.InputRequests)
	}
	if asked != 5 || r.IsError || fmt.Sprint(e.allowed) != "[true true true true true]" {
		t.Errorf("asked %d: %+v %v", asked, r, e.allowed)
	}
}

// TestRoundsState checks that a state is valid for its call only, and only once.
func TestRoundsState(t *testing.T) {
	e := &curious{names: 2}
	cs, _ := rounds(t, e)
	first := again(t, cs, "sandbox_script", nil, "")
	second := again(t, cs, "sandbox_script", first, "decline")
	for _, c := range []struct {
		tool string
		r    *sdk.CallToolResult
	}{
		{"sandbox_script", first}, {"sandbox_script", &sdk.CallToolResult{RequestState: "guessed"}},
		{"sandbox_exec", second}, {"sandbox_script", second}, // the first of them used up the state
	} {
		if r := again(t, cs, c.tool, c.r, "accept"); !r.IsError || r.Content[0].(*sdk.TextContent).Text != errState.Error() {
			t.Errorf("%s: %+v", c.tool, r)
		}
	}
}

// TestRoundsCancelled checks that a client that cancels the current round cancels the call.
func TestRoundsCancelled(t *testing.T) {
	e := &curious{names: 1}
	e.hold = make(chan struct{})
	cs, s := rounds(t, e)
	r := again(t, cs, "sandbox_script", nil, "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for waits := true; waits; time.Sleep(time.Millisecond) { // until the round has begun
			s.parked.mu.Lock()
			waits = len(s.parked.talks) > 0
			s.parked.mu.Unlock()
		}
		cancel()
	}()
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "sandbox_script", RequestState: r.RequestState}); err == nil {
		t.Error("answered")
	}
	<-e.ended
}

// TestRoundsAbandoned checks that a call is cancelled if its client does not return.
func TestRoundsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var p parked
		state := p.put(&talk{cancel: cancel})
		time.Sleep(returnTime - time.Second) // of the fake clock
		if ctx.Err() != nil {
			t.Error("ended too soon")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ctx.Err() == nil || p.take(state) != nil {
			t.Error("still waits")
		}
	})
}

// TestRoundsLate checks that a question whose time is over is not asked any more.
func TestRoundsLate(t *testing.T) {
	k := &talk{news: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if k.ask(ctx, &sdk.ElicitParams{}) || k.questions() != nil {
		t.Error("asked")
	}
}

// TestRoundsProgress checks that heartbeats go to the request of the current round, also if the first question came
// before the operation began.
func TestRoundsProgress(t *testing.T) {
	d := &desk{hold: make(chan struct{})}
	s, _ := serverFor(t, d, func(o *Options) {
		o.Policy = ruled{o.Policy, func(words string) (string, operator.Verdict, error) { return words, operator.Ask, nil }}
	})
	var once sync.Once
	cs := clientOf(t, s, &sdk.ClientOptions{
		MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return nil, fmt.Errorf("asked while the call was under way")
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			if r.Params.ProgressToken == "second" {
				once.Do(func() { close(d.hold) })
			}
		},
	}, severalRounds)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	call := func(token string, state string, answers sdk.InputResponseMap) *sdk.CallToolResult {
		p := &sdk.CallToolParams{Name: "sandbox_script", Arguments: json.RawMessage(`{"command":"x","allowed_domains":["a.test"]}`)}
		p.SetProgressToken(token)
		p.RequestState, p.InputResponses = state, answers
		r, err := cs.CallTool(ctx, p)
		if err != nil {
			t.Fatalf("%s round: %v", token, err)
		}
		return r
	}
	first, answers := call("first", "", nil), sdk.InputResponseMap{}
	for id := range first.InputRequests {
		answers[id] = &sdk.ElicitResult{Action: "accept"}
	}
	if r := call("second", first.RequestState, answers); r.IsError || r.NeedsInput() { // it ends only after a heartbeat
		t.Errorf("%+v", r)
	}
}
