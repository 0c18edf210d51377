package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSecret bounds a secret in bytes, as docker does.
const maxSecret = 500 << 10

// secret is where the value of a --secret comes from.
type secret struct{ file, variable string }

// secretsOf parses the words of --secret: id=ID[,src=PATH|,env=NAME].
func secretsOf(words []string) (map[string]secret, error) {
	all := map[string]secret{}
	for _, word := range words {
		id, s, kind := "", secret{}, ""
		for _, part := range strings.Split(word, ",") {
			k, v, _ := strings.Cut(part, "=")
			switch k {
			case "id":
				id = v
			case "src", "source":
				s.file = v
			case "env":
				s.variable = v
			case "type":
				kind = v
			default:
				return nil, fmt.Errorf("secret %q: unknown field %q", word, k)
			}
		}
		switch {
		case id == "":
			return nil, fmt.Errorf("secret %q: no id", word)
		case s.file != "" && s.variable != "":
			return nil, fmt.Errorf("secret %q: both src and env", id)
		case kind == "env" && s.variable == "":
			s = secret{variable: s.file}
		}
		if s == (secret{}) {
			s.variable = id
		}
		all[id] = s
	}
	return all, nil
}

// agentsOf parses the words of --ssh: ID[=SOCKET].
func agentsOf(words []string, getenv func(string) string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range words {
		id, socket, given := strings.Cut(word, "=")
		if !given {
			socket = getenv("SSH_AUTH_SOCK")
		}
		if socket == "" {
			return nil, fmt.Errorf("ssh %q: no socket, and SSH_AUTH_SOCK is not set", id)
		}
		abs, err := filepath.Abs(socket)
		if err != nil {
			return nil, err
		}
		st, err := os.Stat(abs)
		if err != nil || st.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("ssh %q: %q is not a socket; keys in files are not supported", id, socket)
		}
		all[id] = abs
	}
	return all, nil
}

// secretOf reads a secret when a step needs it.
func (b *builder) secretOf(id string) (value []byte, ok bool, err error) {
	s, ok := b.secrets[id]
	if !ok {
		return nil, false, nil
	}
	if s.variable != "" {
		v, ok := b.env(s.variable)
		return []byte(v), ok, nil
	}
	f, err := os.Open(s.file)
	if err != nil {
		return nil, false, fmt.Errorf("read secret %q: %w", id, err)
	}
	defer f.Close()
	if value, err = io.ReadAll(io.LimitReader(f, maxSecret+1)); err == nil && len(value) > maxSecret {
		err = errors.New("larger than 500 KiB")
	}
	if err != nil {
		return nil, false, fmt.Errorf("read secret %q: %w", id, err)
	}
	return value, true, nil
}
