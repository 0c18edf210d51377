// Package secretvault keeps the values of E2B's secrets in the user's vault.
package secretvault

import (
	"errors"
	"fmt"
	"os"

	"demesne/session"
	"demesne/session/vault"
)

// Secrets are the secrets of one namespace's callers.
type Secrets struct {
	vault     *vault.Vault
	namespace string
}

// Open returns the secrets of the callers of a namespace; empty: those without one.
func Open(namespace string) (*Secrets, error) {
	v, err := vault.Default(os.Getenv("DEMESNE_VAULT_KEY"))
	return &Secrets{v, "e2b:" + namespace}, err
}

// Set stores a value. Values that no header can have are the caller's mistake.
func (s *Secrets) Set(name, value string) error {
	_, err := s.vault.Add(vault.Secret{Namespace: s.namespace, Name: name, Value: value})
	if errors.Is(err, vault.ErrInvalid) {
		err = fmt.Errorf("%w: %w", session.ErrInvalid, err)
	}
	return err
}

// Value returns a value.
func (s *Secrets) Value(name string) (string, error) {
	one, err := s.vault.Get(s.namespace, name)
	return one.Value, err
}

// Remove removes a value.
func (s *Secrets) Remove(name string) error {
	err := s.vault.Remove(s.namespace, name)
	if errors.Is(err, vault.ErrNone) {
		return nil
	}
	return err
}
