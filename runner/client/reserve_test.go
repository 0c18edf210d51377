package client

import (
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// TestReserve checks that the place that a client reserved is free again when the client releases it, makes nothing with
// it, fails to make its sandbox, or ends; and that it is not while its sandbox lives.
func TestReserve(t *testing.T) {
	c := newCorner(t)
	ctx := t.Context()
	connect := func() *Client {
		t.Helper()
		one, err := Connect(ctx, Options{Quota: runner.Quota{User: 1}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { one.Close() })
		return one
	}
	other := connect()
	spec := runner.Spec{Lifetime: runner.Persistent, Out: c.TempDir(), Name: "n"}
	for _, step := range []struct {
		name string
		do   func(one *Client, slot string, release func()) error
	}{
		{"release", func(_ *Client, _ string, release func()) error { release(); return nil }},
		{"end", func(one *Client, _ string, _ func()) error { return one.Close() }},
		{"fail", func(one *Client, slot string, _ func()) error {
			wrong := spec
			wrong.Slot, wrong.Name = slot, "not a name"
			_, err := one.Create(ctx, wrong)
			if code(err) == ipc.CodeInvalid {
				err = nil
			}
			return err
		}},
		{"remove", func(one *Client, slot string, _ func()) error {
			right := spec
			right.Slot = slot
			sb, err := one.Create(ctx, right)
			if err != nil {
				return err
			}
			if _, _, err := other.Reserve(ctx, ""); code(err) != ipc.CodeTooMany {
				t.Errorf("beside a sandbox: %v", err)
			}
			if _, err := other.Create(ctx, runner.Spec{Lifetime: runner.Persistent, Out: c.TempDir()}); code(err) != ipc.CodeTooMany {
				t.Errorf("create beside a sandbox: %v", err)
			}
			return sb.Remove(ctx)
		}},
	} {
		one := connect()
		slot, release, err := one.Reserve(ctx, "")
		if err != nil || slot == "" {
			t.Fatalf("%s: %q, %v", step.name, slot, err)
		}
		if _, _, err := other.Reserve(ctx, ""); code(err) != ipc.CodeTooMany || !strings.Contains(err.Error(), "too many sandboxes (1)") {
			t.Errorf("before %s: %v", step.name, err)
		}
		if err := step.do(one, slot, release); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		c.eventually("a place after "+step.name, func() bool {
			_, release, err := other.Reserve(ctx, "")
			release()
			return err == nil
		})
	}
}
