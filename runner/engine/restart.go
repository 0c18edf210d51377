package engine

import (
	"demesne/runner/api"
	"demesne/runner/grants"
	"demesne/runner/ipc"
	"demesne/runner/network"
	"demesne/runner/sandbox"
	"demesne/runner/store"
)

// restart starts a stopped sandbox over its remaining files. The caller has opened its directories again.
func (c *caller) restart(t api.Restart, m *ipc.Message) (api.Opened, error) {
	e := c.e
	live, rec, err := e.table.locate(t.Sandbox)
	switch {
	case err != nil:
		return api.Opened{}, err
	case live != nil: // another caller was faster
		grants.Remove(e.machine.Boot.RunDir, t.Granted)
		return live.Open()
	case rec.Snapshot:
		return api.Opened{}, sandbox.ErrStopped(rec)
	}
	spec := rec.Info.Spec
	spec.Exposed, spec.Granted = t.Exposed, t.Granted
	if spec.Egress != nil {
		spec.Egress.Upstream, spec.Egress.Trust, spec.Egress.Secrets = t.Upstream, t.Trust, t.Secrets
		spec.Egress.Routes = network.WithCredentials(spec.Egress.Routes, t.Routes)
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return api.Opened{}, err
	}
	s := sandbox.NewRestarted(e.env(), rec, spec, egress, t.Secrets, c)
	other, err := e.table.claimAgain(s, c.most)
	if err != nil {
		return api.Opened{}, err
	}
	if other != nil {
		grants.Remove(e.machine.Boot.RunDir, t.Granted)
		return other.Open()
	}
	if err := e.build(s, m); err != nil {
		return api.Opened{}, ipc.Errorf(codeOf(err), "restart sandbox %q: %w", s.ID(), err)
	}
	s.Made(nil)
	return s.Open()
}

// absent handles a request about a sandbox that is not live in this runner.
func (e *Engine) absent(op ipc.Op, t api.Target, rec store.Record, unknown error) (any, error) {
	switch {
	case unknown == nil && op == api.OpInspect:
		return rec.Info, nil
	case unknown == nil && (op == api.OpPause || op == api.OpUsage):
		return nil, sandbox.ErrStopped(rec)
	case unknown == nil && op == api.OpOpen:
		return nil, sandbox.ErrStopped(e.machine.Released(rec))
	case unknown == nil:
		return nil, e.machine.StopOther(rec, t.Keep)
	case op == api.OpStop || op == api.OpPause || op == api.OpUsage:
		return nil, unknown
	}
	info, err := e.machine.History.Find(t.Sandbox)
	switch {
	case err != nil:
		return nil, unknown
	case op == api.OpOpen:
		return nil, ipc.Errorf(ipc.CodeGone, "open sandbox %q: it has ended", t.Sandbox)
	}
	return *info, nil
}
