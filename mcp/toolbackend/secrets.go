package toolbackend

import (
	"fmt"
	"io"

	"demesne/mcp"
	"demesne/runner"
	"demesne/session"
	"demesne/session/vault"
)

// varSecrets names the namespace of the stored secrets that models may use; empty: none.
const varSecrets = "DEMESNE_SECRETS"

// secrets are the stored secrets that models may use. The zero value has none.
type secrets struct {
	*vault.Vault
	namespace string
}

// openSecrets opens the secrets of the environment's namespace.
func openSecrets(getenv func(string) string) (s secrets, err error) {
	if s.namespace = getenv(varSecrets); s.namespace == "" {
		return s, nil
	}
	if !vault.IsNamespace(s.namespace) {
		return s, fmt.Errorf("%s %q: not lower-case letters, digits and dashes", varSecrets, s.namespace)
	}
	s.Vault, err = vault.Default(getenv("DEMESNE_VAULT_KEY"))
	return s, err
}

// offered returns what models see. A secret without a host is not offered: a model must not choose the host.
func (s secrets) offered(warn io.Writer) (all []mcp.SecretName, err error) {
	if s.Vault == nil {
		return nil, nil
	}
	list, err := s.List(s.namespace)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", varSecrets, err)
	}
	for _, one := range list {
		if one.Host == "" {
			fmt.Fprintf(warn, "warning: %s: %s has no host, and is ignored\n", varSecrets, one.Name)
			continue
		}
		all = append(all, mcp.SecretName{Name: one.Name, Host: one.Host})
	}
	return all, nil
}

// create returns the sandbox that r asks for, with the values of its secrets.
func (s secrets) create(r session.Request) (c session.CreateOptions, err error) {
	c = r.Create
	for _, name := range r.Secrets {
		if s.Vault == nil {
			return c, fmt.Errorf("secret %q: %s is not set", name, varSecrets)
		}
		one, err := s.Get(s.namespace, name)
		if err == nil && one.Host == "" {
			err = fmt.Errorf("no host is stored with it")
		}
		if err != nil {
			return c, fmt.Errorf("secret %q: %w", name, err)
		}
		c.Egress.Secrets = append(c.Egress.Secrets, runner.Secret{Name: name, Value: one.Value, Host: one.Host, Header: one.Header})
	}
	return c, nil
}
