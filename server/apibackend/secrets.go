package apibackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"demesne/runner"
	"demesne/server"
	"demesne/server/backend"
	"demesne/session/vault"
)

// given remembers which stored secrets sandboxes have, so that a restart finds their values again. It lives as long as the
// server: later a restarted sandbox lacks them, and its next result says so.
type given struct {
	mu    sync.Mutex
	names map[string]grant // by name and id of the sandbox
}

// grant names stored secrets.
type grant struct {
	namespace string
	names     []string
}

// givenMost bounds the sandboxes that are remembered.
const givenMost = 10_000

func (g *given) remember(of grant, sandboxes ...string) {
	if len(of.names) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.names == nil || len(g.names) >= givenMost {
		g.names = map[string]grant{}
	}
	for _, s := range sandboxes {
		g.names[s] = of
	}
}

func (g *given) of(sandbox string) grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.names[sandbox]
}

// fill adds the values of the secrets that a request names to its network.
func (b *Backend) fill(ctx context.Context, c *backend.Create) (grant, error) {
	g := grant{cmp.Or(server.CallerOf(ctx).Namespace, vault.DefaultNamespace), c.Secrets}
	for _, name := range g.names {
		one, err := g.value(name)
		if err != nil {
			return g, fmt.Errorf("secret %q: %w", name, err)
		}
		c.Network.Secrets = append(c.Network.Secrets, one)
	}
	return g, nil
}

// value returns one of the secrets.
func (g *grant) value(name string) (runner.Secret, error) {
	v, err := vault.Default(os.Getenv("DEMESNE_VAULT_KEY"))
	if err != nil {
		return runner.Secret{}, err
	}
	one, err := v.Get(g.namespace, name)
	switch {
	case errors.Is(err, vault.ErrNone):
		return runner.Secret{}, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	case err == nil && one.Host == "":
		err = fmt.Errorf("%w: no host is stored with it", backend.ErrInvalid)
	}
	return runner.Secret{Name: name, Value: one.Value, Host: one.Host, Header: one.Header}, err
}

// again returns the secrets of a sandbox that is restarted. One that was removed meanwhile is missing.
func (b *Backend) again(spec runner.Spec) (all []runner.Secret) {
	g := b.given.of(spec.Name)
	for _, name := range g.names {
		if one, err := g.value(name); err == nil {
			all = append(all, one)
		}
	}
	return all
}
