package operator

import (
	"errors"
	"fmt"

	"demesne/runner"
	"demesne/session/vault"
)

// Secret returns a stored credential that the callers may use, with its value. One without a host is refused: a caller
// must not choose the host.
func (p *Policy) Secret(name string) (runner.Secret, error) {
	if p.secrets == nil {
		return runner.Secret{}, refused("secret %q: the operator offers none: %s is not set", name, VarSecrets)
	}
	stored, err := p.secrets()
	if err != nil {
		return runner.Secret{}, err
	}
	one, err := stored.Get(p.Secrets, name)
	switch {
	case errors.Is(err, vault.ErrNone):
		return runner.Secret{}, refused("secret %q: %w", name, err)
	case err == nil && one.Host == "":
		return runner.Secret{}, refused("secret %q: no host is stored with it", name)
	case err != nil:
		return runner.Secret{}, fmt.Errorf("secret %q: %w", name, err)
	}
	return runner.Secret{Name: name, Value: one.Value, Host: one.Host, Header: one.Header}, nil
}

// AllSecrets returns the values of named credentials.
func (p *Policy) AllSecrets(names []string) (all []runner.Secret, err error) {
	for _, name := range names {
		one, err := p.Secret(name)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// Offered returns the credentials that the callers may use, without values, and the names of those that they may not,
// because no host is stored with them.
func (p *Policy) Offered() (all []runner.Secret, hostless []string, err error) {
	if p.secrets == nil {
		return nil, nil, nil
	}
	stored, err := p.secrets()
	if err != nil {
		return nil, nil, err
	}
	list, err := stored.List(p.Secrets)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", VarSecrets, err)
	}
	for _, one := range list {
		if one.Host == "" {
			hostless = append(hostless, one.Name)
			continue
		}
		all = append(all, runner.Secret{Name: one.Name, Host: one.Host})
	}
	return all, hostless, nil
}
