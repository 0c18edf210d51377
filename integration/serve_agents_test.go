package integration

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"demesne/client"
	"demesne/integration/fixture"
)

// client returns a client of package client.
func (s *apiServer) client(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: s.url, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// brief returns a context that ends before the test does.
func brief(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hung)
	t.Cleanup(cancel)
	return ctx
}

// got returns a value without an error.
func got[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestServeAgents starts agents over /v1, with a played model: their cost in the list, their trace, their answer and
// outputs, one that fails, one that is cancelled with its child, the operator's ceilings, and another namespace.
func TestServeAgents(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		switch {
		case strings.Contains(r.Prompt, "CHILD"):
			return shell("sleep 1000")
		case strings.Contains(r.Prompt, "Loop."):
			return endless(r)
		case strings.Contains(r.Prompt, "Wait."):
			return fixture.Steps(childTool("agent", map[string]any{"name": "one", "prompt": "CHILD", "background": true}), shell("sleep 1000"))(r)
		}
		return fixture.Steps(shell("echo made > /out/made.txt; id -un"), fixture.Answer{Text: "Answer."})(r)
	})
	b.keepsJobs()
	b.extra = append(b.extra, "DEMESNE_MAX_COST_USD=5")
	api, alice, _ := b.tenants("--egress", "none", "--memory", "1g")
	c, ctx := api.client(t, api.key), brief(t)
	const secret = realKey

	j := got[*client.Job](t)(c.Agents().Start(ctx, client.AgentRequest{Prompt: "Work.", MaxCost: 2, Limits: &client.Limits{Memory: 512 << 20}}))
	if j = got[*client.Job](t)(c.Jobs().Wait(ctx, j.ID)); j.Status != "succeeded" || !j.Agent || j.Stdout == nil || j.Stdout.Text != "Answer." || j.Cost == nil || j.Cost.Own <= 0 {
		t.Fatalf("%+v %+v %+v", j, j.Stdout, j.Stderr)
	}
	list := got[[]client.Job](t)(c.Agents().List(ctx))
	if len(list) != 1 || list[0].ID != j.ID || list[0].Cost == nil || list[0].Cost.Total != j.Cost.Total || list[0].Command != "Work." {
		t.Errorf("%+v", list)
	}
	trace := got[*client.Trace](t)(c.Agents().Trace(ctx, j.ID))
	var steps []string
	for _, e := range trace.Events {
		steps = append(steps, e.Event)
		if strings.Contains(e.Text, secret) {
			t.Errorf("the trace has the credential: %+v", e)
		}
	}
	if order := []string{"session", "tool_call", "tool_result", "text", "result"}; !inOrder(steps, order) {
		t.Errorf("the trace: %q", steps)
	}
	if len(trace.Requests) != 2 || trace.Requests[0].Time.After(trace.Requests[1].Time) || trace.Requests[1].Output == 0 {
		t.Errorf("requests of the trace: %+v", trace.Requests)
	}
	files := got[[]client.OutputFile](t)(c.Outputs().List(ctx, j.Run))
	if !slices.ContainsFunc(files, func(f client.OutputFile) bool { return f.Path == "made.txt" }) {
		t.Errorf("%+v", files)
	}
	f := got[io.ReadCloser](t)(c.Outputs().Open(ctx, j.Run, "made.txt"))
	if text, _ := io.ReadAll(f); string(text) != "made\n" {
		t.Errorf("%q", text)
	}
	f.Close()

	// One that fails says why.
	bad := got[*client.Job](t)(c.Agents().Start(ctx, client.AgentRequest{Prompt: "CRASH"}))
	if bad = got[*client.Job](t)(c.Jobs().Wait(ctx, bad.ID)); bad.Exit == nil || *bad.Exit != 3 || bad.Stderr == nil || !strings.Contains(bad.Stderr.Text, "out of luck") {
		t.Errorf("%+v %+v", bad, bad.Stderr)
	}
	if trace, err := c.Agents().Trace(ctx, bad.ID); err != nil || len(trace.Requests) > 0 {
		t.Errorf("the trace of one that failed: %+v %v", trace, err)
	}

	// Each bound ends one, and says so.
	for reason, q := range map[string]client.AgentRequest{
		"budget: tokens: ":      {Prompt: "Loop.", MaxTokens: 500},
		"budget: turns: 3 of 2": {Prompt: "Loop.", MaxTurns: 2},
		"budget: cost: $":       {Prompt: "Loop.", MaxCost: 0.002},
	} {
		j := got[*client.Job](t)(c.Agents().Start(ctx, q))
		j = got[*client.Job](t)(c.Jobs().Wait(ctx, j.ID))
		if j.Exit == nil || *j.Exit != 137 || j.Reason != "budget" || !strings.HasPrefix(j.Message, reason) || j.Cost == nil || j.Cost.Total <= 0 {
			t.Errorf("%q: %+v %+v", reason, j, j.Cost)
		}
	}

	// A cancelled one ends with its child.
	n := len(m.Log())
	long := got[*client.Job](t)(c.Agents().Start(ctx, client.AgentRequest{Prompt: "Wait."}))
	eventually(t, "the agent and its child to wait", func() bool { return len(m.Log()) >= n+3 })
	if now := got[*client.Job](t)(c.Agents().Get(ctx, long.ID)); now.Status != "running" || now.Cost == nil || now.Cost.Total <= 0 {
		t.Errorf("while it runs: %+v", now)
	}
	if gone := got[*client.Job](t)(c.Jobs().Cancel(ctx, long.ID)); gone.Status != "cancelled" {
		t.Errorf("%+v", gone)
	}
	if left := b.must("ls", "-q"); left != "" {
		t.Errorf("a cancelled agent left %s", left)
	}

	// Ceilings, and requests that are wrong.
	for name, q := range map[string]client.AgentRequest{
		"above the operator's cost":  {Prompt: "Work.", MaxCost: 6},
		"above the operator's rules": {Prompt: "Work.", Network: &client.Network{Mode: "package-managers"}},
		"research":                   {Prompt: "Work.", Research: true},
		"above the operator's limit": {Prompt: "Work.", Limits: &client.Limits{Memory: 2 << 30}},
		"a name":                     {Prompt: "Work.", Network: &client.Network{Allow: []string{"example.com"}}},
		"a model":                    {Prompt: "Work.", Model: "no-such"},
		"an image of the host":       {Prompt: "Work.", Image: "/etc"},
		"no prompt":                  {},
	} {
		if j, err := c.Agents().Start(ctx, q); !errors.Is(err, client.ErrInvalid) && !errors.Is(err, client.ErrDenied) {
			t.Errorf("%s: %+v %v", name, j, err)
		}
	}

	// Another namespace does not see it.
	other := api.client(t, alice.token)
	if list, err := other.Agents().List(ctx); err != nil || len(list) > 0 {
		t.Errorf("another namespace lists %+v %v", list, err)
	}
	for name, call := range map[string]func() error{
		"get":     func() error { _, err := other.Agents().Get(ctx, j.ID); return err },
		"trace":   func() error { _, err := other.Agents().Trace(ctx, j.ID); return err },
		"cancel":  func() error { _, err := other.Jobs().Cancel(ctx, j.ID); return err },
		"outputs": func() error { _, err := other.Outputs().List(ctx, j.Run); return err },
		"open":    func() error { _, err := other.Outputs().Open(ctx, j.Run, "made.txt"); return err },
	} {
		if err := call(); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%s from another namespace: %v", name, err)
		}
	}
	if strings.Contains(api.said(), secret) {
		t.Error("the server's messages have the credential")
	}
	os.RemoveAll(b.home + "/.demesne/jobs")
}

// inOrder reports whether words are in list, in their order.
func inOrder(list, words []string) bool {
	for _, w := range words {
		at := slices.Index(list, w)
		if at < 0 {
			return false
		}
		list = list[at+1:]
	}
	return true
}
