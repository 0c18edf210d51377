// Package hostaccess opens the guard of host commands for a program: with the operator's policy, the requests in the user's
// state, and the values that no caller gets.
package hostaccess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/server/hostcmd"
	"demesne/session"
	"demesne/session/audit"
	"demesne/session/events"
	"demesne/session/vault"
)

// Options configures host access.
type Options struct {
	Policy  string // file
	Audit   func(context.Context, events.Event) error
	Secrets []string // values that no caller gets, such as tokens
	Private []string // files that are never used, such as tokens'
	// Credential is as in [hostcmd.Options].
	Credential func(path string, listed []string) (place string, found bool)
	// Explain gives an error of a copy into a sandbox the words of the caller.
	Explain func(sandbox string, err error) error
}

// Open opens the guard of host commands. The caller closes it. There is one for all callers of a program.
func Open(o Options) (*hostcmd.Guard, error) {
	if insideSandbox() {
		return nil, errors.New("host access: this is a sandbox, whose files and commands need no approval")
	}
	p, err := hostcmd.ReadPolicy(o.Policy)
	if err != nil {
		return nil, err
	}
	dir, err := State()
	if err != nil {
		return nil, err
	}
	values := append(environmentSecrets(os.Environ()), o.Secrets...)
	stored, err := storedSecrets()
	if err != nil {
		return nil, err
	}
	return hostcmd.Open(hostcmd.Options{
		Policy: p, State: dir, Audit: o.Audit, Copy: o.copyToSandbox, Credential: o.Credential, Private: o.Private,
		Redact: func(w io.Writer) io.WriteCloser { return redact.New(slices.Concat(stored(), values)...).Writer(w) },
	})
}

// State returns the directory of the requests.
func State() (string, error) {
	dir, err := fsutil.StateDir("host")
	if err != nil {
		return "", fmt.Errorf("find state: %w", err)
	}
	return dir, nil
}

// insideSandbox reports whether this process is in a sandbox of demesne.
func insideSandbox() bool {
	_, in := os.LookupEnv("DEMESNE_IN")
	_, out := os.LookupEnv("DEMESNE_OUT")
	return in && out && os.Getenv("IS_SANDBOX") == "1"
}

// OpenAudited is Open for a program with one client, with the user's audit log. An empty Policy is the user's own. The caller calls
// done.
func OpenAudited(o Options) (g *hostcmd.Guard, done func(), err error) {
	if o.Policy == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, nil, fmt.Errorf("find host policy: %w", err)
		}
		o.Policy = filepath.Join(config, "demesne", "host.toml")
	}
	dir, err := audit.DefaultDir()
	if err != nil {
		return nil, nil, err
	}
	log, err := audit.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	o.Audit = func(_ context.Context, e events.Event) error {
		_, err := log.Append(e)
		return err
	}
	g, err = Open(o)
	if err != nil {
		log.Close()
	}
	if errors.Is(err, os.ErrNotExist) {
		err = text.Hinted(err, "the tool set host needs a policy: docs/guide/host-commands.md")
	}
	return g, func() { g.Close(); log.Close() }, err
}

// secretNames are parts of the names of variables with credentials.
var secretNames = []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL"}

// secretFrom is the length from which on such a value is a credential.
const secretFrom = 8

func environmentSecrets(environ []string) (values []string) {
	for _, kv := range environ {
		name, v, _ := strings.Cut(kv, "=")
		for _, part := range secretNames {
			if len(v) >= secretFrom && strings.Contains(strings.ToUpper(name), part) {
				values = append(values, v)
				break
			}
		}
	}
	return values
}

// storedSecrets returns a function that returns the values of all stored secrets, or the last known ones while they cannot be read.
// If a command prints their key, which may ask a person, it returns none.
func storedSecrets() (func() []string, error) {
	key := os.Getenv("DEMESNE_VAULT_KEY")
	if strings.HasPrefix(key, "cmd:") {
		return func() []string { return nil }, nil
	}
	v, err := vault.Default(key)
	if err != nil {
		return nil, err
	}
	known, err := v.Values()
	var last atomic.Pointer[[]string]
	last.Store(&known)
	return func() []string {
		if now, err := v.Values(); err == nil {
			last.Store(&now)
		}
		return *last.Load()
	}, err
}

// copyToSandbox copies a file or directory into a sandbox of the caller.
func (o Options) copyToSandbox(ctx context.Context, by hostcmd.Caller, path, sandbox, dst string) error {
	of := session.Options{}
	if by.Over == hostcmd.OverMCP {
		of.Runner.Frontend = runner.FrontendMCP
	}
	of.Runner.Frontend = of.Runner.Frontend.In(by.Namespace)
	s := session.New(of)
	defer s.Close()
	_, err := s.Copy(ctx, session.Place{Path: path}, session.Place{Sandbox: sandbox, Path: dst}, session.Callbacks{})
	return o.Explain(sandbox, err)
}
