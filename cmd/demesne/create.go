package main

import (
	"context"
	"fmt"
	"time"

	"demesne/cmd/internal/session/egress"
	"demesne/runner"
	"demesne/runner/client"
)

// site holds a connected runner and the prepared directories of a new sandbox.
type site struct {
	eng  engine
	spec runner.Spec
	out  *outDir
}

// undo removes the directories if the sandbox is not created or not used.
func (s *site) undo() {
	s.out.undo()
	s.tidy()
}

func (s *site) tidy() {
	if s.spec.Egress != nil {
		tidyLog(s.spec.Egress.Log)
	}
}

// findSite prepares a site for a root that was found. It starts the runner first: that takes longest, and the
// runner ends by itself if this process is killed. Directories would remain, so they are created once signals
// are handled.
func (a *app) findSite(sig *signals, spec runner.Spec, r *root, wanted <-chan found, stages *stages) (_ *site, err error) {
	st := &site{spec: spec}
	var f found
	joinRunner := a.startConnect(sig.ctx, client.Options{Network: r.o.network.wanted() && r.o.network.mode != egress.None, Ask: a.asker(r.o), Restart: f.restore}, stages)
	<-sig.watched
	derr := st.makeDirs(r.o)
	if st.eng, err = joinRunner(); err == nil && derr != nil {
		st.eng.Close()
	}
	if derr != nil {
		return nil, derr
	}
	if err == nil {
		f = <-wanted
		if err = r.o.network.apply(&st.spec, f, st.out.name()); err == nil && r.o.key != "" {
			st.spec.Given, err = r.given(st.spec)
		}
		if err != nil {
			st.eng.Close()
		}
	}
	if err != nil {
		st.out.undo()
		return nil, err
	}
	return st, nil
}

// startConnect connects to a runner in the background. join waits for the connection.
func (a *app) startConnect(ctx context.Context, o client.Options, stages *stages) (join func() (engine, error)) {
	began := time.Now()
	var eng engine
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		if eng, err = a.connect(ctx, o); err == nil {
			stages.since("connect", began)
		}
	}()
	return func() (engine, error) {
		<-done
		return eng, err
	}
}

func (s *site) makeDirs(o *options) (err error) {
	if s.spec.Workspace, err = workspaceDir(o.workspace); err != nil {
		return err
	}
	if s.out, err = prepareOut(o.out); err == nil {
		s.spec.Out = s.out.path
	}
	return err
}

// makeBox makes a sandbox in st, or finds the one of the key.
func (a *app) makeBox(ctx context.Context, st *site, r *root, stages *stages) (*box, error) {
	b, err := r.create(ctx, st.eng, st.spec)
	if err != nil {
		return nil, err
	}
	if b.Replaced {
		a.say(fmt.Sprintf("%s: removed the sandbox with the key %q and its files; %s replaces it", r.o.verb, r.o.key, b.ID))
	}
	if st.spec.Lifetime == runner.Persistent && !b.Existing {
		if err := a.roomFor(ctx, st.eng, b.ID); err != nil {
			return nil, err
		}
	}
	stages.add(b.Trace...)
	a.warnMinimal(r.o.verb, b.Level)
	if b.Existing {
		st.undo()
	}
	if r.o.key != "" {
		st.out.made = nil // the sandbox owns its directories now
	}
	return b, nil
}
