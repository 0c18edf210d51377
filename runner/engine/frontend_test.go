package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
	"demesne/runner/store"
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

// TestListPages checks that lists of any length arrive in messages that are not too large, in order, each sandbox once.
func TestListPages(t *testing.T) {
	root := t.TempDir()
	d, err := store.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	began, want := time.Now(), []string{}
	for i, kib := range []int{3 << 10, 1, 3 << 10, 1, 1, 6 << 10, 1} { // the sixth is too large for a page with others
		id := fmt.Sprintf("%012x", i)
		b, err := d.New(id)
		if err != nil {
			t.Fatal(err)
		}
		spec := runner.Spec{Out: strings.Repeat("o", kib<<10), Frontend: runner.FrontendMCP}
		if i == 3 {
			spec.Frontend = runner.FrontendOf("alice")
		} else {
			want = append(want, id)
		}
		created := began.Add(time.Duration(i/2) * time.Second) // two are of the same time
		if err := errors.Join(b.Write(store.Record{Info: runner.Info{ID: id, Created: created, Expires: began.Add(time.Hour), Spec: spec}, Map: "map"}), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	_, of := runnerOver(t, root)
	c := of(runner.FrontendMCP, runner.Quota{})
	var got []string
	var sizes []int
	for next := (api.ListRequest{}); ; {
		page, err := c.list(next)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		sizes = append(sizes, len(page))
		for _, text := range page {
			var i runner.Info
			if err := json.Unmarshal(text, &i); err != nil {
				t.Fatal(err)
			}
			got, next = append(got, i.ID), api.ListRequest{Created: i.Created, After: i.ID}
		}
	}
	if !slices.Equal(got, want) || !slices.Equal(sizes, []int{2, 2, 1, 1}) {
		t.Errorf("%v in pages of %v, want %v", got, sizes, want)
	}
}
