package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"demesne/session"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// noRuns is a backend that is not called.
type noRuns struct{ Runs }

// fakeRuns answers with what it is asked for.
type fakeRuns struct {
	Runs
	sandbox session.Request
}

func (f *fakeRuns) Run(_ context.Context, raw json.RawMessage, sandbox session.Request) (*StartedRun, error) {
	var a struct{ Identifier string }
	json.Unmarshal(raw, &a)
	f.sandbox = sandbox
	if a.Identifier == "" {
		return nil, fmt.Errorf("%w: identifier", ErrArguments)
	}
	return &StartedRun{ID: "run-1", Identifier: a.Identifier}, nil
}

func (f *fakeRuns) Delete(context.Context, json.RawMessage) (string, error) {
	return "", errors.New("no sandbox")
}

// TestRunTools checks the shape of the results and errors of the set "runs".
func TestRunTools(t *testing.T) {
	f := &fakeRuns{}
	s, _ := serverFor(t, &desk{}, func(o *Options) { o.Sets, o.Runs = []string{RunsSet}, f })
	cs := client(t, s, nil)
	call := func(tool string, args map[string]any) (*sdk.CallToolResult, error) {
		return cs.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	}
	r, err := call("run_sandbox", map[string]any{"identifier": "a", "commands": []any{}, "options": map[string]any{"egress": "none", "limits": map[string]any{"pids": 9}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.StructuredContent.(map[string]any); got["run_id"] != "run-1" || got["tool"] != "run_sandbox" || got["final"] != nil {
		t.Errorf("%+v", got)
	}
	if f.sandbox.Create.Egress.Mode != "none" || f.sandbox.Create.Spec.Limits.PIDs != 9 {
		t.Errorf("%+v", f.sandbox)
	}
	for _, c := range []struct {
		tool string
		args map[string]any
		code int64
	}{
		{"run_sandbox", nil, jsonrpc.CodeInvalidParams},
		{"run_sandbox", map[string]any{"identifier": "a", "options": map[string]any{"egress": "open"}}, jsonrpc.CodeInvalidParams},
		{"delete_sandbox", map[string]any{"identifier": "a"}, codeFailed},
	} {
		_, err := call(c.tool, c.args)
		var e *jsonrpc.Error
		if !errors.As(err, &e) || e.Code != c.code || len(e.Data) == 0 {
			t.Errorf("%s %v: %v", c.tool, c.args, err)
		}
	}
}
