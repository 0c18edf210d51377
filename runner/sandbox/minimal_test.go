package sandbox

import (
	"errors"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// TestMinimalRefuses checks that a machine without namespaces refuses what it cannot provide, with the fix.
func TestMinimalRefuses(t *testing.T) {
	for name, i := range map[string]*identity{
		"publish": {spec: runner.Spec{Publish: []runner.Port{{To: 80}}}},
		"group":   {egress: &runner.Egress{Group: "shop"}},
		"socket":  {spec: runner.Spec{Inputs: []runner.Input{{Socket: true}}}},
		"tmpfs":   {spec: runner.Spec{Interior: runner.Interior{Tmpfs: []runner.Tmpfs{{Target: "/x"}}}}},
	} {
		i.machine = &Machine{Boot: api.Boot{ModeWhy: "no namespaces", ModeFix: "type this"}}
		b := &building{Sandbox: &Sandbox{state: &state{identity: i}}}
		err := b.admitMinimal()
		var we *ipc.Error
		if !errors.As(err, &we) || we.Code != ipc.CodeRequirement || we.Hint != "type this" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
