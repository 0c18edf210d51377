package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/images/archive"
	"demesne/images/oci"
	"demesne/internal/flock"
)

// stage builds a stage.
func (b *Builder) stage(ctx context.Context, plan *containerfile.Stage) (_ *stage, err error) {
	s := &stage{Builder: b, plan: plan}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	st, commands, err := b.plan.Begin(plan, s.base)
	if err != nil {
		return nil, err
	}
	s.st, commands = st, append(commands, plan.Commands...)
	s.of = len(commands)
	for _, c := range commands {
		s.steps++
		step, err := st.Apply(c)
		if err != nil {
			return nil, err
		}
		if step == nil {
			s.note(containerfile.Text(c), nil, s.latest())
			s.show.configured()
			continue
		}
		if err := s.step(ctx, step); err != nil {
			return nil, b.plan.At(step.Line, err)
		}
	}
	return s, nil
}

// begin takes the layers and the configuration of the base.
func (s *stage) begin(ctx context.Context) error {
	s.show.from(s)
	switch {
	case s.plan.Scratch:
		return nil
	case s.plan.Parent != nil:
		on := s.results[s.plan.Parent].stage
		config, err := on.config()
		s.below = diffIDs(on.layers)
		s.base, s.layers, s.history = config, on.layers[:len(on.layers):len(on.layers)], slices.Clone(on.history)
		return err
	}
	img, err := s.find(ctx, s.plan.Image, s.plan.Platform)
	if err != nil {
		return s.Builder.plan.At(s.plan.Line, err)
	}
	if s.base, err = archive.Config(ctx, s.images.Store, img); err != nil {
		return err
	}
	s.layers, s.below = img.Layers, diffIDs(img.Layers)
	s.history, err = historyOf(s.base, len(img.Layers))
	return err
}

// step makes the layer of a step, or takes an earlier build's.
func (s *stage) step(ctx context.Context, step *containerfile.Step) error {
	content, err := s.content(ctx, step)
	if err != nil {
		return err
	}
	key, err := inputs{Below: s.below, Run: step.Run, Copy: step.Copy, Content: content, Network: networkOf(step.Run, s.Egress), Epoch: s.epochText()}.key()
	if err != nil {
		return err
	}
	if !s.NoCache {
		if ok, err := s.cached(ctx, step, key); ok || err != nil {
			return err
		}
		unlock, err := s.lockKey(ctx, key)
		if err != nil {
			return err
		}
		defer unlock()
		if ok, err := s.cached(ctx, step, key); ok || err != nil { // another build has made it meanwhile
			return err
		}
	}
	began := time.Now()
	s.show.begin(s, step)
	s.sent = nil
	r, err := s.execute(ctx, step)
	if err == nil && slices.ContainsFunc(s.sent, func(d oci.Digest) bool { return !slices.Contains(content, d) }) {
		err = errors.New("files of the context changed while they were copied")
	}
	if err != nil {
		s.show.failed(s, step)
		return err
	}
	s.show.done(s, step, time.Since(began))
	if s.Claimed {
		r.Images = []string{s.Names[0].Full}
	}
	if err := (images.Steps{Store: s.images.Store}).Put(key, r); err != nil {
		return err
	}
	s.add(step, key, r)
	return nil
}

// cached takes the result of an earlier build.
func (s *stage) cached(ctx context.Context, step *containerfile.Step, key oci.Digest) (ok bool, err error) {
	kept := images.Steps{Store: s.images.Store}
	r, ok, err := kept.Get(ctx, key)
	if ok && err == nil && s.Claimed {
		err = kept.Claim(ctx, key, s.Names[0].Full)
	}
	if ok && err == nil {
		s.show.cached(s, step)
		s.add(step, key, r)
	}
	return ok, err
}

// lockKey lets one build at a time execute the step of a key; others wait for its result. A few keys share a lock, so that
// the number of lock files is bounded. While it is held no other is taken, so builds cannot wait for each other.
func (s *stage) lockKey(ctx context.Context, key oci.Digest) (unlock func(), err error) {
	dir := filepath.Join(s.images.Store.Dir(), "step-locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock step: %w", err)
	}
	lock, err := flock.Open(ctx, filepath.Join(dir, key.Encoded()[:3]), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("lock step: %w", err)
	}
	return func() { lock.Close() }, nil
}

// execute makes the layer of a step in the stage's sandbox.
func (s *stage) execute(ctx context.Context, step *containerfile.Step) (r images.StepResult, err error) {
	if err := s.ready(ctx, step); err != nil {
		return r, err
	}
	switch {
	case step.Run != nil:
		err = s.run(ctx, step.Run, step.Text)
	case step.Copy != nil:
		err = s.copy(ctx, step.Copy)
	}
	if err != nil {
		return r, err
	}
	r.Created = s.now()
	r.Layer, err = s.sandbox.layer(ctx)
	if r.Layer != nil {
		s.sandbox.has = append(s.sandbox.has, *r.Layer)
	}
	if s.sandbox.mounts != nil {
		s.close() // others wait for its caches, and no later step may see its mounts
	}
	return r, err
}

// add appends the result of a step. What follows depends on its layer. It also depends on each RUN itself: a command may
// leave something in the sandbox that no layer has, such as its own /etc/hosts. Without the key, such a command could
// change the result of a step that another build takes.
func (s *stage) add(step *containerfile.Step, key oci.Digest, r images.StepResult) {
	if step.Run != nil {
		s.below = append(s.below, key)
	}
	if r.Layer != nil {
		s.layers = append(s.layers, *r.Layer)
		s.below = append(s.below, r.Layer.DiffID)
	}
	s.note(step.Text, r.Layer, r.Created)
}

func (s *stage) note(text string, l *oci.Layer, at time.Time) {
	if s.Epoch != nil {
		at = *s.Epoch
	}
	h := ocispec.History{CreatedBy: text, EmptyLayer: l == nil}
	if !at.IsZero() {
		at = at.UTC()
		h.Created = &at
		s.date(at)
	}
	s.history = append(s.history, h)
}

// date gives a time to the entries of the history that have none.
func (s *stage) date(at time.Time) {
	for i := range s.history {
		if s.history[i].Created == nil {
			s.history[i].Created = &at
		}
	}
}

// latest returns the time of the last entry of the history that has one. Instructions without a layer have it, or if there is
// none the time of the first step, so that a build whose steps are all kept makes the same image again.
func (s *stage) latest() time.Time {
	for _, h := range slices.Backward(s.history) {
		if h.Created != nil {
			return *h.Created
		}
	}
	return time.Time{}
}

func (s *stage) now() time.Time {
	if s.Epoch != nil {
		return *s.Epoch
	}
	return time.Now().UTC()
}

func (s *stage) epochText() string {
	if s.Epoch == nil {
		return ""
	}
	return s.Epoch.UTC().Format(time.RFC3339)
}

func (s *stage) close() {
	if s.sandbox != nil {
		s.sandbox.close()
		s.sandbox = nil
	}
}
