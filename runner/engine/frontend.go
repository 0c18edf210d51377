package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// frontendCalls lists the operations for callers of any frontend but the command line. Others are refused.
var frontendCalls = map[ipc.Op]struct {
	named  bool // the body names a sandbox, which the frontend must see
	shared bool // the frontend may see it by sharing; otherwise the frontend must own it
}{
	api.OpCreate: {}, api.OpKey: {}, api.OpRun: {}, api.OpList: {}, api.OpReserve: {}, api.OpRelease: {}, api.OpCheck: {}, api.OpSweep: {},
	api.OpOpen: {true, true}, api.OpRestart: {true, true}, api.OpInspect: {true, true}, api.OpAnswer: {true, true},
	api.OpExec: {true, true}, api.OpWait: {true, true}, api.OpSignal: {true, true}, api.OpResize: {true, true},
	api.OpAttach: {true, true}, api.OpDiff: {true, true}, api.OpUsage: {true, true},
	api.OpStop: {true, false}, api.OpPause: {true, false}, api.OpEgress: {true, false}, api.OpLimits: {true, false}, api.OpFork: {true, false}, api.OpLayer: {true, false},
}

// hold restricts a call to the sandboxes of its caller's frontend. It is the only such check, and every call passes it.
// It replaces the name in the call by an id, so that later look-ups find the sandbox that was checked here.
func (c *caller) hold(m *ipc.Message) error {
	if c.frontend == runner.FrontendCLI {
		return nil
	}
	may, ok := frontendCalls[m.Op]
	if !ok {
		return ipc.Errorf(ipc.CodeInvalid, "serve call: operation %q: only the command line may call it", m.Op)
	}
	if !may.named {
		return nil
	}
	var t api.ExecTarget
	if err := m.Decode(&t); err != nil {
		return err
	}
	if err := c.e.settled(); err != nil {
		return err
	}
	id, spec := c.e.specOf(t)
	if full := c.frontend.Full(t.Sandbox); full != t.Sandbox && (spec == nil || !c.frontend.Sees(spec)) {
		named := t
		named.Sandbox = full
		id, spec = c.e.specOf(named)
	}
	switch {
	case spec == nil || !c.frontend.Sees(spec):
		return ipc.NoSuchSandbox(t.Sandbox)
	case !may.shared && !c.frontend.Owns(spec):
		return ipc.Errorf(ipc.CodeInvalid, "%s sandbox %q: only the command line may do this to a shared sandbox", m.Op, t.Sandbox)
	}
	return rename(m, id)
}

// specOf finds the sandbox that t names, or the sandbox of the command that t names: live, stopped or ended. spec
// is nil if there is no such sandbox.
func (e *Engine) specOf(t api.ExecTarget) (id string, spec *runner.Spec) {
	if x, err := e.results.Find(t); err == nil {
		return x.Sandbox().ID(), x.Sandbox().Spec()
	}
	s, rec, err := e.table.locate(t.Sandbox)
	switch {
	case err == nil && s != nil:
		return s.ID(), s.Spec()
	case err == nil:
		return rec.Info.ID, &rec.Info.Spec
	}
	info, err := e.machine.History.Find(t.Sandbox)
	if err != nil {
		return "", nil
	}
	return info.ID, &info.Spec
}

// rename makes a call name its sandbox by id.
func rename(m *ipc.Message, id string) error {
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

// list returns the sandboxes that c's frontend sees and that are younger than r.After, the oldest first: as many as fit
// into a message, and at least one if there is any.
func (c *caller) list(r api.ListRequest) ([]json.RawMessage, error) {
	all, err := c.e.table.list()
	if err != nil {
		return nil, err
	}
	page, size := []json.RawMessage{}, 0
	for i := range all {
		if !c.frontend.Sees(&all[i].Spec) || !r.Follows(&all[i]) {
			continue
		}
		c.shorten(&all[i])
		text, err := json.Marshal(all[i])
		if size += len(text); err != nil || len(page) > 0 && size > api.ListBytes {
			return page, err
		}
		page = append(page, text)
	}
	return page, nil
}

// shorten gives a sandbox the name by which c's frontend knows it.
func (c *caller) shorten(i *runner.Info) {
	i.Name, i.Spec.Name = c.frontend.Short(i.Name), c.frontend.Short(i.Spec.Name)
}
