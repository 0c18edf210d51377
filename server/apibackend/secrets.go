package apibackend

import (
	"sync"

	"demesne/runner"
)

// given remembers which stored secrets sandboxes have, so that a restart finds their values again. It lives as long as the
// server: later a restarted sandbox lacks them, and its next result says so.
type given struct {
	mu    sync.Mutex
	names map[string][]string // names of secrets, by name and id of the sandbox
}

// maxGiven bounds the sandboxes that are remembered.
const maxGiven = 10_000

// remember records the secrets of a new sandbox. One of the same name may have been removed, and had others.
func (g *given) remember(secrets []string, sandboxes ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names == nil || len(g.names) >= maxGiven {
		g.names = map[string][]string{}
	}
	for _, s := range sandboxes {
		if delete(g.names, s); len(secrets) > 0 {
			g.names[s] = secrets
		}
	}
}

func (g *given) of(sandbox string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names[sandbox]
}

// again returns the secrets of a sandbox that is restarted. One that was removed meanwhile is missing.
func (b *Backend) again(spec runner.Spec) (all []runner.Secret) {
	for _, name := range b.given.of(spec.Name) {
		if one, err := b.Policy.Secret(name); err == nil {
			all = append(all, one)
		}
	}
	return all
}
