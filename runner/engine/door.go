package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/protocol"
	"demesne/runner/wire"
)

// atDoor says what a caller of a door other than the command line may ask. An operation that is not here is refused.
var atDoor = map[wire.Op]struct {
	named  bool // it is about the sandbox that its body names, which the door has to see
	shared bool // and may have been shared; otherwise the door has to own it
}{
	protocol.OpCreate: {}, protocol.OpKey: {}, protocol.OpRun: {}, protocol.OpList: {}, protocol.OpCount: {}, protocol.OpCheck: {}, protocol.OpSweep: {},
	protocol.OpOpen: {true, true}, protocol.OpRestart: {true, true}, protocol.OpInspect: {true, true}, protocol.OpAnswer: {true, true},
	protocol.OpExec: {true, true}, protocol.OpWait: {true, true}, protocol.OpSignal: {true, true}, protocol.OpResize: {true, true},
	protocol.OpAttach: {true, true}, protocol.OpDiff: {true, true},
	protocol.OpStop: {true, false}, protocol.OpEgress: {true, false}, protocol.OpFork: {true, false}, protocol.OpLayer: {true, false},
}

// hold holds a call to the sandboxes of its caller's door. It is the one place that does, and every call passes it.
// What the call names is replaced by an id, so that what is looked up later is what was looked at here.
func (c *caller) hold(m *wire.Message) error {
	if c.door == runner.DoorCLI {
		return nil
	}
	may, ok := atDoor[m.Op]
	if !ok {
		return wire.Errorf(wire.CodeInvalid, "serve call: operation %q is the command line's", m.Op)
	}
	if !may.named {
		return nil
	}
	var t protocol.ExecTarget
	if err := m.Decode(&t); err != nil {
		return err
	}
	if err := c.e.settled(); err != nil {
		return err
	}
	id, spec := c.e.specOf(t)
	switch {
	case spec == nil || !c.door.Sees(spec):
		return wire.Errorf(wire.CodeUnknown, "find sandbox %q: no such sandbox", t.Sandbox)
	case !may.shared && !c.door.Owns(spec):
		return wire.Errorf(wire.CodeInvalid, "%s sandbox %q: it is shared: only the command line, which made it, may", m.Op, t.Sandbox)
	}
	return rename(m, id)
}

// specOf finds what t names: a sandbox that lives, is kept, or has ended, or that of a command. spec is nil if there is no such sandbox.
func (e *Engine) specOf(t protocol.ExecTarget) (id string, spec *runner.Spec) {
	if x, err := e.findExec(t); err == nil {
		return x.s.id, &x.s.spec
	}
	s, rec, err := e.locate(t.Sandbox)
	switch {
	case err == nil && s != nil:
		return s.id, &s.spec
	case err == nil:
		return rec.Info.ID, &rec.Info.Spec
	}
	info, err := e.state.Find(t.Sandbox)
	if err != nil {
		return "", nil
	}
	return info.ID, &info.Spec
}

// rename has a call name its sandbox by id.
func rename(m *wire.Message, id string) error {
	var body map[string]json.RawMessage
	err := m.Decode(&body)
	if err == nil {
		maps.DeleteFunc(body, func(field string, _ json.RawMessage) bool { return strings.EqualFold(field, "sandbox") })
		body["sandbox"], err = json.Marshal(id)
	}
	if err == nil {
		m.Body, err = json.Marshal(body)
	}
	if err != nil {
		return fmt.Errorf("serve call: %w", err)
	}
	return nil
}

// list is the sandboxes that c's door sees.
func (c *caller) list() []runner.Info {
	return slices.DeleteFunc(c.e.list(), func(i runner.Info) bool { return !c.door.Sees(&i.Spec) })
}
