package engine

import (
	"encoding/json"
	"errors"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

// TestFrontendOperations checks that frontendCalls has a row for every operation.
func TestFrontendOperations(t *testing.T) {
	for op := range handlers {
		if _, ok := frontendCalls[op]; !ok {
			t.Errorf("%s: frontendCalls has no row", op)
		}
	}
	c := &caller{frontend: runner.FrontendMCP, e: newEngine(&sandbox.Machine{})}
	var e *ipc.Error
	if err := c.hold(&ipc.Message{Op: "new"}); !errors.As(err, &e) || e.Code != ipc.CodeInvalid {
		t.Errorf("an operation without a row: %v", err)
	}
}

// TestDoorRename checks that a renamed call has one sandbox field, with the id that was looked up.
func TestDoorRename(t *testing.T) {
	for _, body := range []string{`{"sandbox":"name","exec":7}`, `{"SANDBOX":"other","exec":7,"sandbox":"name"}`, `{"sandbox":"name","exec":7,"Sandbox":"other"}`} {
		m := &ipc.Message{Op: api.OpExec, Body: json.RawMessage(body)}
		var target api.ExecTarget
		if err := errors.Join(rename(m, "id"), m.Decode(&target)); err != nil || target.Sandbox != "id" || target.Exec != 7 {
			t.Errorf("%s: %+v %v", body, target, err)
		}
	}
}
