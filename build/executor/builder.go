package executor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/runner"
	"demesne/session"
)

// options are a build's command line.
type options struct {
	file    string // Containerfile; empty: the context's
	recipe  string // name of a recipe, whose files are the context; empty: none
	dir     string // context; or "-"
	stdin   bool   // the context came from stdin, and dir is a copy of it
	names   []imageref.Ref
	plan    containerfile.Options
	labels  []string
	egress  session.Egress
	limits  runner.Limits
	allowed []string // images that the Containerfile may name; empty: all
	claimed bool     // results of steps are kept only for the image
	most    int64    // bytes of all new layers; 0: no bound
	noCache bool
	pull    bool
	epoch   *time.Time // of all files and of the image; nil: now
	iidFile string
	output  output
	style   style
	secrets map[string]secret
	agents  map[string]sshAgent // by id
	env     func(string) (string, bool)
}

// builder is one build.
type builder struct {
	options
	sessions *session.Service
	images   *images.Client
	plan     *containerfile.Plan
	show     *show
	context  *buildContext
	others   map[string]*stage // images that a --from names

	added atomic.Int64 // bytes of new layers

	mu      sync.Mutex
	results map[*containerfile.Stage]*result
	fetches map[containerfile.Remote]*fetch // sources of ADD from the network
	dropped []oci.Digest                    // images without a name, to be removed at the end
	owners  sync.Once                       // see sayOwners
	held    sync.Map                        // locks of images that the build uses
}

// result is a finished stage.
type result struct {
	done  chan struct{}
	stage *stage
}

// build executes the plan and returns the digest of the target's image.
func (b *builder) build(ctx context.Context) (oci.Digest, error) {
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

func (b *builder) closeStages() {
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

// removeIntermediate removes the images that sandboxes were made from. Their layers are kept as steps.
func (b *builder) removeIntermediate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.images.Store.RemoveAll(context.Background(), b.dropped); err != nil {
		b.show.note(fmt.Sprintf("remove intermediate images: %v", err))
	}
}
