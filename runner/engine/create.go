package engine

import (
	"fmt"
	"path/filepath"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/limits"
)

// create makes a sandbox for c. On an error nothing is left of it.
func (c *caller) create(spec runner.Spec, m *ipc.Message) (*api.Created, error) {
	spec.Door = c.door
	if err := admit(&spec); err != nil {
		return nil, err
	}
	egress, err := c.e.admitEgress(&spec, m)
	if err != nil {
		return nil, err
	}
	replace, replaced := spec.Replace, false
	spec.Replace = false
	s := c.sandboxFor(spec, egress)
	s.kept.secrets = namesOf(secretsOf(egress))
	if spec.Lifetime == runner.Persistent && spec.Name == "" && spec.Key == "" {
		s.life.maker = c
	}
	if spec.Key != "" {
		defer c.e.keys.lock(spec.Key)()
		var id string
		if id, replaced, err = c.e.takeKey(s, replace); err != nil || id != "" {
			return &api.Created{ID: id, Existing: true}, err
		}
	}
	if err := c.e.claim(s); err != nil {
		if s.spare {
			s.abandon()
		}
		return nil, err
	}
	if err := s.build(m); err != nil {
		return nil, ipc.Errorf(codeOf(err), "create sandbox: %w", err)
	}
	made := &api.Created{ID: s.id, Level: s.receipt.Level, Trace: s.trace, Replaced: replaced}
	if spec.Lifetime == runner.Persistent {
		close(s.built)
		if c.left() && s.unknown() {
			s.stop(false)
			return nil, ipc.ErrClosed
		}
	} else {
		// Its owner ends it, so no record of it is needed before its end.
		s.owner = c
		close(s.built)
		if !c.adopt(s) {
			s.end("its caller ended")
			return nil, ipc.ErrClosed
		}
	}
	return made, nil
}

// launch makes a sandbox for one command and starts the command. If the command does not start, the sandbox ends.
func (c *caller) launch(req api.RunRequest, m *ipc.Message) (*api.RunReply, ipc.Files, error) {
	if req.Spec.Lifetime != runner.OneShot {
		return nil, nil, ipc.Errorf(ipc.CodeInvalid, "run command: lifetime %q: a sandbox of one command must be one-shot", req.Spec.Lifetime)
	}
	made, err := c.create(req.Spec, m)
	if err != nil {
		return nil, nil, err
	}
	s, err := c.e.find(made.ID)
	if err != nil {
		return nil, nil, err
	}
	started, files, err := s.execute(c, req.Exec, m)
	if err != nil {
		s.end("its command was not started")
		return nil, nil, err
	}
	return &api.RunReply{Created: *made, Exec: *started}, files, nil
}

func codeOf(err error) ipc.Code { return ipc.AsError(err).Code }

// admit rejects an invalid Spec and fills in defaults.
func admit(spec *runner.Spec) error {
	if err := validName(spec.Name); err != nil {
		return err
	}
	if spec.Image == "" {
		spec.Image = "host"
	}
	if err := admitRootfs(spec); err != nil {
		return err
	}
	if spec.Hostname == "" {
		spec.Hostname = "demesne"
	}
	if err := admitKey(*spec); err != nil {
		return err
	}
	if spec.Share != "" && (!spec.Share.Known() || spec.Door != runner.DoorCLI || spec.Lifetime != runner.Persistent) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: share %.64q: only persistent sandboxes of the command line can be shared, and only with mcp", string(spec.Share))
	}
	if !filepath.IsAbs(spec.Out) {
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: output directory %q: not absolute", spec.Out)
	}
	switch spec.Require {
	case "", runner.LevelFull, runner.LevelDegraded, runner.LevelMinimal:
	default:
		return ipc.Errorf(ipc.CodeInvalid, "create sandbox: require %q: not a level (full, degraded, minimal)", spec.Require)
	}
	spec.Limits = limits.Resolve(spec.Limits)
	return nil
}

// userFits rejects a user outside the id map.
func (s *sandbox) userFits() error {
	u := s.spec.User
	if u == nil {
		return nil
	}
	if u.UID >= s.e.boot.UIDs() || u.GID >= s.e.boot.GIDs() {
		return &ipc.Error{
			Code: ipc.CodeInvalid,
			Text: fmt.Sprintf("set user %d:%d: not in the id map, which has %d ids", u.UID, u.GID, s.e.boot.UIDs()),
			Hint: s.e.boot.MapFix,
		}
	}
	return nil
}
