package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
	"demesne/runner"
)

// Tokens are the tokens of namespaces, in one file that several processes may change. The file has only their hashes.
// A running server sees changes at the next request.
type Tokens struct {
	path string

	mu    sync.Mutex
	stamp fsutil.Stamp
	all   map[string]NamespaceToken // by hash
}

// NamespaceToken describes a token.
type NamespaceToken struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	Added     time.Time `json:"added"`
	Expires   time.Time `json:"expires,omitzero"` // zero: never
	Hash      string    `json:"sha256"`
}

// Bounds of the file.
const (
	maxTokens    = 10_000
	maxTokenFile = 8 << 20
)

// ErrNoToken means that there is no token of that name.
var ErrNoToken = errors.New("no such token")

// OpenTokens returns the tokens in the directory of a server's state.
func OpenTokens(dir string) *Tokens { return &Tokens{path: filepath.Join(dir, "tokens.json")} }

// Add makes a token. Its name is new. If name is empty, it becomes the namespace's. life is 0 for a token without end.
func (t *Tokens) Add(namespace, name string, life time.Duration) (token string, err error) {
	if err := CheckNamespace(namespace); err != nil {
		return "", err
	}
	if name == "" {
		name = namespace
	}
	if err := runner.CheckName(name); err != nil {
		return "", fmt.Errorf("token %q: %w", name, err)
	}
	token = newToken()
	one := NamespaceToken{Name: name, Namespace: namespace, Added: time.Now().UTC().Truncate(time.Second), Hash: hashOf(token)}
	if life > 0 {
		one.Expires = one.Added.Add(life)
	}
	return token, t.change(func(all []NamespaceToken) ([]NamespaceToken, error) {
		switch {
		case slices.ContainsFunc(all, func(o NamespaceToken) bool { return o.Name == name }):
			return nil, fmt.Errorf("token %q exists", name)
		case len(all) >= maxTokens:
			return nil, fmt.Errorf("more than %d tokens", maxTokens)
		}
		return append(all, one), nil
	})
}

// CheckNamespace rejects a namespace that only the operator can have: the operator's own secrets are in default.
func CheckNamespace(namespace string) error {
	switch {
	case !runner.IsNamespace(namespace):
		return fmt.Errorf("namespace %q: not lower-case letters, digits and dashes, at most 63", namespace)
	case namespace == "default":
		return errors.New(`namespace "default": it has the operator's own secrets`)
	}
	return nil
}

// Remove removes the token of a name. No request with it succeeds from then on.
func (t *Tokens) Remove(name string) error {
	return t.change(func(all []NamespaceToken) ([]NamespaceToken, error) {
		rest := slices.DeleteFunc(slices.Clone(all), func(o NamespaceToken) bool { return o.Name == name })
		if len(rest) == len(all) {
			return nil, ErrNoToken
		}
		return rest, nil
	})
}

// List returns all tokens, without their values, which are stored nowhere.
func (t *Tokens) List() ([]NamespaceToken, error) {
	b, err := fsutil.ReadPrivate(t.path, maxTokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	var all []NamespaceToken
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return all, nil
}

func (t *Tokens) change(f func([]NamespaceToken) ([]NamespaceToken, error)) error {
	lock, err := flock.Open(context.Background(), t.path+".lock", os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return fmt.Errorf("lock tokens: %w", err)
	}
	defer lock.Close()
	all, err := t.List()
	if err == nil {
		all, err = f(all)
	}
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = fsutil.WriteFile(t.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	return nil
}

// caller returns the caller that a token stands for. A file that cannot be read has none.
func (t *Tokens) caller(token string) (Caller, error) {
	if t == nil {
		return Caller{}, ErrUnauthorized
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil || !t.stamp.Holds() {
		t.load()
	}
	one, ok := t.all[hashOf(token)] // a look-up by hash says nothing about the tokens
	if !ok || !one.Expires.IsZero() && time.Now().After(one.Expires) {
		return Caller{}, ErrUnauthorized
	}
	return Caller{Name: one.Name, Namespace: one.Namespace}, nil
}

// load reads the file. mu is held.
func (t *Tokens) load() {
	stamp, err := fsutil.StampOf(t.path)
	t.all = map[string]NamespaceToken{}
	var list []NamespaceToken
	if err == nil {
		list, err = t.List()
	}
	if err != nil || !stamp.Settled(time.Now()) {
		stamp = fsutil.Stamp{Path: t.path, Size: -1} // read it again for the next request
	}
	t.stamp = stamp
	for _, one := range list {
		if CheckNamespace(one.Namespace) == nil {
			t.all[one.Hash] = one
		}
	}
}

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
