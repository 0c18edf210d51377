package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// loginUnreadable is the text that users of earlier systems know, with its hint.
const loginUnreadable = "cannot read %s (run `codex login`): %w"

// login is the content of a credential: a key that never expires, or an OAuth token.
type login struct {
	token   string
	refresh string
	account string    // of a codex login
	expires time.Time // zero: unknown or never
}

// credential returns the first credential of p that this host has. It resolves Base, and File to an absolute path.
func (o Options) credential(p Provider, tool string) (Credential, error) {
	var unreadable error
	for _, c := range p.Credentials {
		if base := o.Env(c.BaseEnv); c.BaseEnv != "" && base != "" {
			c.Base = base
		}
		c.Base = strings.TrimSuffix(c.Base, "/")
		if c.Env != "" {
			if o.Env(c.Env) != "" {
				return c, nil
			}
			continue
		}
		c.File = o.file(c)
		if c.File == "" {
			continue
		}
		l, err := c.read()
		switch {
		case err == nil && c.Kind == "codex" && l.refresh == "" && l.account == "":
			return c.inFile(o), nil
		case err == nil:
			return c, nil
		case c.Kind == "codex":
			unreadable = fmt.Errorf(loginUnreadable, c.File, err)
		case !errors.Is(err, fs.ErrNotExist) && c.Kind == "text":
			unreadable = fmt.Errorf("read credential: %w", err)
		}
	}
	if unreadable != nil {
		return Credential{}, unreadable
	}
	if p.Missing == "" {
		return Credential{}, fmt.Errorf("a credential of agent %q is required for %s", p.Name, tool)
	}
	return Credential{}, errors.New(strings.ReplaceAll(p.Missing, "{tool}", tool))
}

// inFile is the credential of a login with an API key, which codex keeps in the same file. Such a key is for
// another base URL than an account's token.
func (c Credential) inFile(o Options) Credential {
	c.Base = openAIBase
	if base := o.Env("OPENAI_BASE_URL"); base != "" {
		c.Base = strings.TrimSuffix(base, "/")
	}
	return c
}

// file returns the path of a credential's file, or "" if its home is unknown.
func (o Options) file(c Credential) string {
	path := c.File
	if v := o.Env(c.FileEnv); c.FileEnv != "" && v != "" {
		path = v
	}
	rest, below := strings.CutPrefix(path, "~/")
	if !below {
		return path
	}
	if o.Home == "" {
		return ""
	}
	return filepath.Join(o.Home, rest)
}

// read reads the file of a credential.
func (c Credential) read() (login, error) {
	data, err := os.ReadFile(c.File)
	if err != nil {
		return login{}, err
	}
	var l login
	switch c.Kind {
	case "codex":
		var f codexFile
		if f, err = parseCodex(data); err == nil {
			l = f.login()
		}
	case "claude-login":
		l, err = parseClaude(data)
	default:
		l.token = strings.TrimSpace(string(data))
	}
	if err == nil && l.token == "" {
		err = errors.New("no token in it")
	}
	return l, err
}

// parseClaude reads the file in which Claude Code keeps its own login. Its refresh token is left alone: each use
// replaces it, and only the program that owns the file may do that.
func parseClaude(data []byte) (login, error) {
	var f struct {
		ClaudeAIOAuth struct {
			AccessToken string
			ExpiresAt   int64 // milliseconds
		} `json:"claudeAiOauth"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return login{}, errors.New("malformed JSON")
	}
	l := login{token: f.ClaudeAIOAuth.AccessToken}
	if ms := f.ClaudeAIOAuth.ExpiresAt; ms > 0 {
		l.expires = time.UnixMilli(ms)
	}
	return l, nil
}

// headers returns the headers that the proxy inserts into a request.
func (c Credential) headers(l login) map[string]string {
	value := l.token
	if c.Scheme != "" {
		value = c.Scheme + " " + value
	}
	h := map[string]string{c.Header: value}
	if l.account != "" {
		h["ChatGPT-Account-ID"] = l.account
	}
	return h
}
