package toolbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/mcp"
	"demesne/proxy/redact"
	"demesne/runner"
	"demesne/server/hostcmd"
	"demesne/session"
	"demesne/session/audit"
	"demesne/session/events"
	"demesne/session/vault"
)

// varHostPolicy names the operator's policy of host commands. [hostOff] turns them off, whatever else is set.
const (
	varHostPolicy = "DEMESNE_HOST_POLICY"
	hostOff       = "none"
)

// HostOptions configures host access.
type HostOptions struct {
	Policy  string // file
	Audit   func(context.Context, events.Event) error
	Secrets []string // values that no caller gets, such as tokens
	Private []string // files that are never used, such as those of tokens
}

// OpenHost opens the guard of host commands. The caller closes it. There is one for all callers of a program.
func OpenHost(o HostOptions) (*hostcmd.Guard, error) {
	if insideSandbox() {
		return nil, errors.New("host access: this is a sandbox, whose files and commands need no approval")
	}
	p, err := hostcmd.ReadPolicy(o.Policy)
	if err != nil {
		return nil, err
	}
	dir, err := HostState()
	if err != nil {
		return nil, err
	}
	values := append(environmentSecrets(os.Environ()), o.Secrets...)
	stored, err := storedSecrets()
	if err != nil {
		return nil, err
	}
	return hostcmd.Open(hostcmd.Options{
		Policy: p, State: dir, Audit: o.Audit, Copy: copyToSandbox, Credential: mcp.Credential, Private: o.Private,
		Redact: func(w io.Writer) io.WriteCloser { return redact.New(append(stored(), values...)...).Writer(w) },
	})
}

// HostState returns the directory of the requests.
func HostState() (string, error) {
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

// offerHost gives an MCP server the guard of host commands, if the operator turned them on. done closes what it opened.
func (f *Backend) offerHost(o *mcp.Options) (done func(), err error) {
	o.Namespace = f.options.Namespace
	wanted := slices.Contains(o.Sets, setHost)
	switch {
	case f.options.Host != nil:
		if o.Host = f.options.Host; !wanted {
			o.Sets = append(o.Sets, setHost)
		}
	case wanted && f.options.Listed: // a server of several callers
		return nil, cmdline.Hinted(errors.New("tools: host: needs a policy"), "demesne serve --host-policy FILE")
	case wanted:
		if o.Host, done, err = f.ownHost(); err != nil {
			return nil, fmt.Errorf("tools: host: %w", err)
		}
		return done, nil
	}
	return func() {}, nil
}

// setHost is the tool set of host commands.
const setHost = "host"

// ownHost opens host access for a program with one client, with the audit log. The caller calls done.
func (f *Backend) ownHost() (g *hostcmd.Guard, done func(), err error) {
	path := f.options.setting(varHostPolicy)
	if path == hostOff {
		return nil, nil, errors.New("the tool set host is not offered here")
	}
	if path == "" {
		config, err := os.UserConfigDir()
		if err != nil {
			return nil, nil, fmt.Errorf("find host policy: %w", err)
		}
		path = filepath.Join(config, "demesne", "host.toml")
	}
	dir, err := fsutil.StateDir("audit")
	if err != nil {
		return nil, nil, fmt.Errorf("find audit log: %w", err)
	}
	log, err := audit.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	g, err = OpenHost(HostOptions{Policy: path, Audit: func(_ context.Context, e events.Event) error {
		_, err := log.Append(e)
		return err
	}})
	if err != nil {
		log.Close()
	}
	if errors.Is(err, os.ErrNotExist) {
		err = cmdline.Hinted(err, "the tool set host needs a policy: docs/guide/host-commands.md")
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

// storedSecrets returns a function that returns the values of all stored secrets. If a command prints their key, which may ask a
// person, it returns none.
func storedSecrets() (func() []string, error) {
	key := os.Getenv("DEMESNE_VAULT_KEY")
	if strings.HasPrefix(key, "cmd:") {
		return func() []string { return nil }, nil
	}
	v, err := vault.Default(key)
	if err != nil {
		return nil, err
	}
	return v.Values, nil
}

// copyToSandbox copies a file or directory into a sandbox of the caller.
func copyToSandbox(ctx context.Context, by hostcmd.Caller, path, sandbox, dst string) error {
	o := session.Options{}
	if by.Over == hostcmd.OverMCP {
		o.Runner.Frontend = runner.FrontendMCP
	}
	o.Runner.Frontend = o.Runner.Frontend.In(by.Namespace)
	s := session.New(o)
	defer s.Close()
	_, err := s.Copy(ctx, session.Place{Path: path}, session.Place{Sandbox: sandbox, Path: dst}, session.Callbacks{})
	return attached(sandbox, err)
}
