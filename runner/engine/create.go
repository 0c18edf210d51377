package engine

import (
	"maps"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

// create makes a sandbox for c. On an error nothing is left of it.
func (c *caller) create(spec runner.Spec, m *ipc.Message) (*api.Created, error) {
	var ahead, place *slot // the one that c reserved, and the one that the sandbox gets
	if spec.Lifetime == runner.Persistent {
		ahead = c.takeSlot(spec.Slot)
		place = ahead
		defer func() { place.release() }()
	}
	spec.Frontend, spec.Slot = c.frontend, ""
	if err := sandbox.Admit(&spec); err != nil {
		return nil, err
	}
	spec.Name = c.frontend.Full(spec.Name)
	if err := c.e.inherit(&spec); err != nil {
		return nil, err
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return nil, err
	}
	replace, replaced := spec.Replace, false
	spec.Replace = false
	s := c.sandboxFor(spec, egress)
	if spec.Key != "" {
		defer c.e.keys.lock(spec.Key)()
		var id string
		replacing := func(id string) (err error) {
			place.release()
			place, err = c.reserve(spec.Key, id)
			return err
		}
		if id, replaced, err = c.e.takeKey(s, egress, replace, c.most, replacing); err != nil || id != "" {
			return &api.Created{ID: id, Existing: true}, err
		}
	}
	if place != nil && place == ahead && !s.Prepared() {
		if err := s.Unpacked(); err != nil && codeOf(err) == ipc.CodeMissing { // its caller unpacks the layers, and calls again
			c.keepSlot(place)
			place = nil
			return nil, ipc.Errorf(ipc.CodeMissing, "create sandbox: %w", err)
		}
	}
	if spec.Lifetime == runner.Persistent && place == nil {
		place, err = c.reserve(spec.Key, "")
	}
	if err == nil {
		err = c.e.table.claim(s, c.most, place)
	}
	if err != nil {
		if s.Prepared() {
			s.Abandon()
		}
		return nil, err
	}
	if err := c.e.build(s, m); err != nil {
		return nil, ipc.Errorf(codeOf(err), "create sandbox: %w", err)
	}
	made := s.Created()
	made.Replaced = replaced
	if err := c.handOver(s); err != nil {
		return nil, err
	}
	if spec.Lifetime == runner.Persistent {
		info := s.Info()
		info.Receipt = &runner.Receipt{Level: made.Level}
		c.shorten(&info)
		made.Info = &info
	}
	return made, nil
}

// createFor is create, and hands the listeners of the sandbox to c.
func (c *caller) createFor(spec runner.Spec, m *ipc.Message) (*api.Created, ipc.Files, error) {
	made, err := c.create(spec, m)
	if err != nil || made.Existing {
		return made, nil, err
	}
	return made, c.listeners(made.ID), nil
}

// listeners returns the listeners of a new sandbox. Its creator alone has them then: they close when the creator ends.
func (c *caller) listeners(id string) ipc.Files {
	s, err := c.e.table.find(id)
	if err != nil { // it has ended already
		return nil
	}
	return s.Listeners()
}

// afterCreate is the pause after a persistent sandbox is made, before another is prepared: its first command comes first.
const afterCreate = 100 * time.Millisecond

// handOver gives a new sandbox to c. It ends the sandbox if c has disconnected and no other caller knows it.
func (c *caller) handOver(s *sandbox.Sandbox) error {
	if s.Spec().Lifetime == runner.Persistent {
		s.Made(nil)
		time.AfterFunc(afterCreate, c.e.pool.Refill)
		if s.Bound() {
			c.bind(s.ID())
		}
		if c.Left() && (s.Unknown() || s.Bound()) {
			c.e.stop(s, api.Target{})
			return ipc.ErrClosed
		}
		return nil
	}
	// Its owner ends it, so no record of it is needed before its end.
	s.Made(c)
	if !c.adopt(s) {
		s.End("its caller ended")
		return ipc.ErrClosed
	}
	return nil
}

// launch makes a sandbox that is not persistent and starts a command in it. If the command does not start, the sandbox ends.
func (c *caller) launch(req api.RunRequest, m *ipc.Message) (*api.RunReply, ipc.Files, error) {
	if req.Spec.Lifetime == runner.Persistent {
		return nil, nil, ipc.Errorf(ipc.CodeInvalid, "run command: lifetime %q: such a sandbox must be created first", req.Spec.Lifetime)
	}
	made, err := c.create(req.Spec, m)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.e.table.find(made.ID)
	if err != nil {
		return nil, nil, err
	}
	started, files, err := s.Execute(c, req.Exec, m)
	if err != nil {
		s.End("its command was not started")
		return nil, nil, err
	}
	all := s.Listeners()
	if all == nil {
		return &api.RunReply{Created: *made, Exec: *started}, files, nil
	}
	maps.Copy(all, files)
	return &api.RunReply{Created: *made, Exec: *started}, all, nil
}
