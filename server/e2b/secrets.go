package e2b

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"demesne/internal/fsutil"
	"demesne/session"
)

// Vault keeps values of secrets, by name. It is safe for concurrent use.
type Vault interface {
	Set(name, value string) error
	Value(name string) (string, error)
	Remove(name string) error // also a name that it does not have
}

// secret is the record of a stored credential. Its value is in the vault, and never answered.
type secret struct {
	ID       string            `json:"secretID"`
	Name     string            `json:"name"`
	Version  int               `json:"currentVersion"`
	Metadata map[string]string `json:"metadata"`
	Created  time.Time         `json:"createdAt"`
	Updated  time.Time         `json:"updatedAt"`
}

type secrets struct {
	records fsutil.Records[secret]
	vault   Vault
	mu      sync.Mutex
	all     map[string]*secret
}

// openSecrets reads the records. One whose value was not stored before the server was killed was never answered to a
// client: value reports that.
func openSecrets(dir *os.Root, v Vault) (s *secrets, err error) {
	if v == nil {
		v = noVault{}
	}
	s = &secrets{records: recordsOf[secret](dir, "secrets"), vault: v}
	s.all, err = s.records.Load()
	return s, err
}

// noVault keeps nothing.
type noVault struct{}

var errNoVault = errors.New("the server has no place for secrets")

func (noVault) Set(string, string) error     { return errNoVault }
func (noVault) Value(string) (string, error) { return "", errNoVault }
func (noVault) Remove(string) error          { return errNoVault }

// value returns the value of the secret with a name.
func (s *secrets) value(name string) (string, error) {
	s.mu.Lock()
	id := ""
	if one := s.find(name); one != nil {
		id = one.ID
	}
	s.mu.Unlock()
	if id == "" {
		return "", fmt.Errorf("%w: secret %q was not found", session.ErrInvalid, name)
	}
	value, err := s.vault.Value(id)
	if err != nil {
		err = fmt.Errorf("read secret %q: %w", name, err)
	}
	return value, err
}

// find returns the secret with an id or a name. mu is held.
func (s *secrets) find(id string) *secret {
	if one := s.all[id]; one != nil {
		return one
	}
	for _, one := range s.all {
		if one.Name == id {
			return one
		}
	}
	return nil
}

type secretRequest struct {
	Name     string            `json:"name"`
	Value    string            `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

func (s *secrets) secretCreate(w http.ResponseWriter, r *http.Request) error {
	var q secretRequest
	if err := body(r, &q); err != nil {
		return err
	}
	if q.Name == "" {
		return fmt.Errorf("%w: name is required", session.ErrInvalid)
	}
	now := time.Now().UTC()
	one := &secret{"sec" + newID(), q.Name, 1, q.Metadata, now, now}
	if one.Metadata == nil {
		one.Metadata = map[string]string{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(q.Name) != nil {
		return refusal{http.StatusConflict, fmt.Sprintf("secret %q exists", q.Name)}
	}
	// A record without a value is harmless if the server is killed between the two.
	err := s.records.Put(one.ID, one)
	if err == nil {
		if err = s.vault.Set(one.ID, q.Value); err != nil {
			s.records.Remove(one.ID)
		}
	}
	if err != nil {
		return err
	}
	s.all[one.ID] = one
	return answer(w, http.StatusCreated, one)
}

func (s *secrets) secretList(w http.ResponseWriter, r *http.Request) error {
	p, err := pageOf(r.URL.Query())
	if err != nil {
		return err
	}
	all := []secret{}
	s.mu.Lock()
	for id := range sortedKeys(s.all) {
		all = append(all, *s.all[id])
	}
	s.mu.Unlock()
	return answer(w, http.StatusOK, cut(w, p, all, func(s secret) string { return s.ID }))
}

// withSecret calls f with the secret that a call names.
func (s *secrets) withSecret(r *http.Request, f func(*secret) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.find(r.PathValue("id")); one != nil {
		return f(one)
	}
	return notFound("secret", r.PathValue("id"))
}

func (s *secrets) secretGet(w http.ResponseWriter, r *http.Request) error {
	return s.withSecret(r, func(one *secret) error { return answer(w, http.StatusOK, one) })
}

func (s *secrets) secretUpdate(w http.ResponseWriter, r *http.Request) error {
	var q secretRequest
	if err := body(r, &q); err != nil {
		return err
	}
	return s.withSecret(r, func(one *secret) error {
		next := *one
		next.Version, next.Updated = one.Version+1, time.Now().UTC()
		if q.Metadata != nil {
			next.Metadata = q.Metadata
		}
		err := s.vault.Set(one.ID, q.Value)
		if err == nil {
			err = s.records.Put(one.ID, &next)
		}
		if err != nil {
			return err
		}
		*one = next
		return answer(w, http.StatusOK, one)
	})
}

func (s *secrets) secretRemove(w http.ResponseWriter, r *http.Request) error {
	return s.withSecret(r, func(one *secret) error {
		if err := s.vault.Remove(one.ID); err != nil {
			return err
		}
		s.records.Remove(one.ID)
		delete(s.all, one.ID)
		return empty(w)
	})
}
