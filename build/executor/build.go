package executor

import (
	"context"

	"golang.org/x/sync/errgroup"

	"demesne/build/containerfile"
	"demesne/images/oci"
)

// Run builds the image, unless it is a recipe's that the store has, and returns its digest.
func (b *Builder) Run(ctx context.Context) (oci.Digest, error) {
	build := b.build
	if b.Recipe != nil {
		build = b.once
	}
	d, err := build(ctx)
	b.show.close()
	if err == nil && b.Output.kind != "" {
		err = b.write(ctx, d)
	}
	if err == nil && b.Compress {
		b.compress(d)
	}
	return d, err
}

// build executes the plan and returns the digest of the target's image.
func (b *Builder) build(ctx context.Context) (oci.Digest, error) {
	defer b.removeIntermediate()
	b.others = map[string]*stage{}
	b.results = map[*containerfile.Stage]*result{}
	for _, s := range b.plan.Stages {
		b.results[s] = &result{done: make(chan struct{})}
	}
	target := b.plan.Stages[len(b.plan.Stages)-1]
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range b.plan.Stages {
		g.Go(func() error {
			r := b.results[s]
			for _, on := range s.Needs {
				select {
				case <-b.results[on].done:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
			st, err := b.stage(ctx, s)
			if err != nil {
				return err
			}
			r.stage = st
			close(r.done)
			return nil
		})
	}
	err := g.Wait()
	defer b.closeStages()
	if err != nil {
		return "", err
	}
	return b.publish(context.WithoutCancel(ctx), b.results[target].stage)
}

func (b *Builder) closeStages() {
	for _, r := range b.results {
		if r.stage != nil {
			r.stage.close()
		}
	}
	for _, s := range b.others {
		s.close()
	}
	for _, f := range b.fetches {
		f.close()
	}
}
