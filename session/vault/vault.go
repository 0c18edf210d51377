// Package vault keeps credentials between runs, encrypted by age (age-encryption.org/v1).
//
//	v, err := vault.Open(dir, vault.Key(os.Getenv("DEMESNE_VAULT_KEY")))
//	err = v.Add(vault.Secret{Namespace: "default", Name: "TOKEN", Value: value, Host: "api.example.com"})
//	s, err := v.Get("default", "TOKEN")
//
// All secrets are in one file, which is replaced atomically under a lock. Its key is an X25519 identity. Where that comes
// from says what the encryption is worth:
//
//   - a file beside the secrets, of mode 0600, which is the default: copies of only the secrets, such as backups, say
//     nothing. A reader of both files knows all values.
//   - a file elsewhere, or the output of a command, such as one that asks a keyring.
//
// A sandbox sees neither: demesne's own directory is in no sandbox. Values are bounded, and only Get and Values return them.
package vault

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"demesne/internal/flock"
	"demesne/internal/fsutil"
)

// Bounds.
const (
	MaxValue   = 64 << 10 // bytes of a value: it has to fit into a header
	maxSecrets = 1000
	maxFile    = 1 << 27 // bytes of the encrypted file
)

// DefaultNamespace is the namespace of callers that name none.
const DefaultNamespace = "default"

// Errors of a Vault.
var (
	ErrNone    = errors.New("no such secret")
	ErrInvalid = errors.New("not a secret") // that a vault can keep
)

// invalid is an [ErrInvalid] that says why.
type invalid struct{ error }

func (invalid) Is(target error) bool { return target == ErrInvalid }

// Secret is a credential.
type Secret struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"` // a variable's name
	Value     string    `json:"value,omitempty"`
	Host      string    `json:"host,omitempty"`   // HOST or HOST:PORT that may get the value; empty: the caller says
	Header    string    `json:"header,omitempty"` // the only header that may have it; empty: any
	Added     time.Time `json:"added"`
}

// check reports what is wrong with a secret.
func (s *Secret) check() error {
	switch {
	case !IsNamespace(s.Namespace):
		return fmt.Errorf("namespace %q: not lower-case letters, digits and dashes", s.Namespace)
	case !isName(s.Name):
		return fmt.Errorf("name %q: not a variable's name", s.Name)
	case s.Value == "":
		return errors.New("value is empty")
	case len(s.Value) > MaxValue:
		return fmt.Errorf("value is longer than %d bytes", MaxValue)
	case strings.ContainsAny(s.Value, "\r\n\x00"):
		return errors.New("value has more than one line")
	}
	return nil
}

// IsNamespace reports whether s can be a namespace: lower-case letters, digits and dashes. A program's own namespaces begin
// with its name and a colon, which no namespace of callers has.
func IsNamespace(s string) bool {
	program, rest, own := strings.Cut(s, ":")
	return isPlain(program) && (!own || rest == "" || isPlain(rest))
}

func isPlain(s string) bool {
	return s != "" && len(s) <= 63 && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func isName(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
	return s != "" && len(s) <= 128 && strings.Trim(s, letters+"0123456789") == "" && strings.IndexByte(letters, s[0]) >= 0
}

// Vault is a directory with secrets. Its methods may be called concurrently, also by several processes.
type Vault struct {
	dir string
	key Source
}

// Open returns the vault of a directory, which is made when it is needed.
func Open(dir string, key Source) *Vault { return &Vault{dir, key} }

// Default returns the vault of demesne's own directory. key is the value of $DEMESNE_VAULT_KEY, or empty.
func Default(key string) (*Vault, error) {
	dir, err := fsutil.StateDir("vault")
	if err != nil {
		return nil, err
	}
	source, err := ParseSource(key)
	if err != nil {
		return nil, fmt.Errorf("$DEMESNE_VAULT_KEY: %w", err)
	}
	return Open(dir, source), nil
}

// Add adds a secret, and reports whether it replaced one with that name. It sets Added.
func (v *Vault) Add(s Secret) (replaced bool, err error) {
	if err := s.check(); err != nil {
		return false, invalid{err}
	}
	s.Added = time.Now().UTC().Truncate(time.Second)
	err = v.change(func(all map[string]Secret) error {
		_, replaced = all[s.id()]
		if all[s.id()] = s; len(all) > maxSecrets {
			return fmt.Errorf("more than %d secrets", maxSecrets)
		}
		return nil
	})
	return replaced, err
}

// Remove removes a secret.
func (v *Vault) Remove(namespace, name string) error {
	return v.change(func(all map[string]Secret) error {
		id := (&Secret{Namespace: namespace, Name: name}).id()
		if _, found := all[id]; !found {
			return ErrNone
		}
		delete(all, id)
		return nil
	})
}

// Get returns a secret with its value.
func (v *Vault) Get(namespace, name string) (Secret, error) {
	all, err := v.read()
	if err != nil {
		return Secret{}, err
	}
	s, found := all[(&Secret{Namespace: namespace, Name: name}).id()]
	if !found {
		return s, ErrNone
	}
	return s, nil
}

// List returns the secrets of a namespace, or of all if it is empty, by name and without their values.
func (v *Vault) List(namespace string) ([]Secret, error) {
	all, err := v.read()
	if err != nil {
		return nil, err
	}
	var some []Secret
	for _, s := range all {
		if namespace == "" || s.Namespace == namespace {
			s.Value = ""
			some = append(some, s)
		}
	}
	slices.SortFunc(some, func(a, b Secret) int { return cmp.Compare(a.id(), b.id()) })
	return some, nil
}

// Values returns the values of all secrets, for a redaction.
func (v *Vault) Values() (values []string, err error) {
	all, err := v.read()
	for _, s := range all {
		values = append(values, s.Value)
	}
	return values, err
}

func (s *Secret) id() string { return s.Namespace + "/" + s.Name }

// Names of the vault's files.
const (
	secretsFile = "secrets.age"
	keyFile     = "key"
	lockFile    = "lock"
)

// change replaces the secrets by f's result.
func (v *Vault) change(f func(map[string]Secret) error) error {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return err
	}
	lock, err := flock.Open(context.Background(), filepath.Join(v.dir, lockFile), os.O_RDWR|os.O_CREATE, flock.Exclusive)
	if err != nil {
		return fmt.Errorf("lock secrets: %w", err)
	}
	defer lock.Close()
	all, err := v.read()
	if err != nil {
		return err
	}
	if err := f(all); err != nil {
		return err
	}
	key, err := v.key.identity(filepath.Join(v.dir, keyFile), true)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	to, err := age.Encrypt(&b, key.Recipient())
	if err == nil {
		err = json.NewEncoder(to).Encode(slices.Collect(maps.Values(all)))
	}
	if err == nil {
		err = to.Close()
	}
	if err == nil {
		err = fsutil.WriteFile(filepath.Join(v.dir, secretsFile), b.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write secrets: %w", err)
	}
	return nil
}

// read returns the secrets by id. Without a file the map is empty.
func (v *Vault) read() (map[string]Secret, error) {
	b, err := fsutil.ReadPrivate(filepath.Join(v.dir, secretsFile), maxFile)
	all := map[string]Secret{}
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secrets: %w", err)
	}
	key, err := v.key.identity(filepath.Join(v.dir, keyFile), false)
	if err != nil {
		return nil, err
	}
	from, err := age.Decrypt(bytes.NewReader(b), key)
	if err != nil {
		return nil, fmt.Errorf("decrypt secrets: %w", err)
	}
	plain, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("decrypt secrets: %w", err)
	}
	var list []Secret
	if err := json.Unmarshal(plain, &list); err != nil {
		return nil, errors.New("decrypt secrets: not a list of secrets") // the error's own text may quote a value
	}
	for _, s := range list {
		all[s.id()] = s
	}
	return all, nil
}
