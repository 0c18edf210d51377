package vault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"demesne/internal/fsutil"
)

// Source says where the key is. The zero value is the file beside the secrets, which is made when it is missing.
type Source struct {
	File    string
	Command string // for /bin/sh; it prints the key
}

// ParseSource reads file:PATH or cmd:TEXT. An empty text is the zero Source.
func ParseSource(s string) (Source, error) {
	kind, what, _ := strings.Cut(s, ":")
	switch {
	case s == "":
		return Source{}, nil
	case kind == "file" && filepath.IsAbs(what):
		return Source{File: what}, nil
	case kind == "cmd" && what != "":
		return Source{Command: what}, nil
	}
	return Source{}, errors.New("not file:PATH, with an absolute path, or cmd:TEXT")
}

// maxKey bounds the text of a key, in bytes.
const maxKey = 4 << 10

// identity returns the key. path is the default file; if create is set, a missing one is made.
func (k Source) identity(path string, create bool) (*age.X25519Identity, error) {
	var text []byte
	var err error
	switch {
	case k.Command != "":
		sh := exec.Command("/bin/sh", "-c", k.Command)
		sh.Stdin, sh.Stderr = os.Stdin, os.Stderr
		text, err = sh.Output()
	case k.File != "":
		text, err = fsutil.ReadPrivate(k.File, maxKey)
	default:
		text, err = fsutil.ReadPrivate(path, maxKey)
		if create && errors.Is(err, fs.ErrNotExist) {
			return newKey(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read key of secrets: %w", err)
	}
	return parseKey(text)
}

func newKey(path string) (*age.X25519Identity, error) {
	key, err := age.GenerateX25519Identity()
	if err == nil {
		err = fsutil.WriteFile(path, []byte(key.String()+"\n"), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("make key of secrets: %w", err)
	}
	return key, nil
}

// parseKey reads a file as age-keygen writes it: comments, and one identity.
func parseKey(text []byte) (*age.X25519Identity, error) {
	var found *age.X25519Identity
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, err := age.ParseX25519Identity(line)
		if err != nil || found != nil { // the error's own text may quote the key
			return nil, errors.New("key of secrets: not one identity of age (AGE-SECRET-KEY-1…)")
		}
		found = key
	}
	if found == nil {
		return nil, errors.New("key of secrets: is empty")
	}
	return found, nil
}
