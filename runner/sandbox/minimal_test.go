package sandbox

import (
	"errors"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// TestMinimalRefusesNetworks checks that a network is refused, not left open, on a machine without namespaces.
func TestMinimalRefusesNetworks(t *testing.T) {
	for name, i := range map[string]*identity{
		"egress": {egress: &runner.Egress{}}, "publish": {spec: runner.Spec{Publish: []runner.Port{{To: 80}}}},
	} {
		i.machine = &Machine{Boot: api.Boot{ModeWhy: "no namespaces", ModeFix: "type this"}}
		b := &building{Sandbox: &Sandbox{state: &state{identity: i}}}
		err := b.raiseMinimal()
		var we *ipc.Error
		if !errors.As(err, &we) || we.Code != ipc.CodeRequirement || we.Hint != "type this" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
