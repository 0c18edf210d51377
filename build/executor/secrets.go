package executor

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"demesne/internal/fsutil"
)

// maxSecret bounds a secret in bytes, as docker does.
const maxSecret = 500 << 10

// Secret is where the value of a --secret comes from.
type Secret struct{ file, variable string }

// ParseSecrets parses the words of --secret: id=ID[,src=PATH|,env=NAME]. An ID alone is a variable or a file of that name.
func ParseSecrets(words []string, env func(string) (string, bool)) (map[string]Secret, error) {
	all := map[string]Secret{}
	for _, word := range words {
		id, s, kind := "", Secret{}, ""
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
		case kind != "" && kind != "env" && kind != "file":
			return nil, fmt.Errorf("secret %q: unknown type %q (env, file)", id, kind)
		case kind == "env" && s.variable == "":
			s = Secret{variable: s.file}
		}
		var err error
		if all[id], err = s.located(id, env); err != nil {
			return nil, fmt.Errorf("secret %q: %w", id, err)
		}
	}
	return all, nil
}

// located completes a secret of which only the id was given, and checks that its source exists.
func (s Secret) located(id string, env func(string) (string, bool)) (Secret, error) {
	if s == (Secret{}) {
		s.file = id
		if _, ok := env(id); ok {
			s = Secret{variable: id}
		}
	}
	if s.variable != "" {
		if _, ok := env(s.variable); !ok {
			return s, fmt.Errorf("the variable %q is not set", s.variable)
		}
		return s, nil
	}
	if _, err := os.Stat(s.file); err != nil {
		return s, fmt.Errorf("read %q: %w", s.file, fsutil.Reason(err))
	}
	return s, nil
}

// secretOf reads a secret when a step needs it.
func (b *Builder) secretOf(id string) (value []byte, ok bool, err error) {
	s, ok := b.Secrets[id]
	if !ok {
		return nil, false, nil
	}
	if s.variable != "" {
		v, ok := b.Env(s.variable)
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
