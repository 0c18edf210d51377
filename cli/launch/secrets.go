package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/proxy/redact"
	"demesne/runner"
)

// SecretFlags are the flags for credentials that a command can use without seeing their values.
func (n *Network) SecretFlags() cmdline.Flags {
	return cmdline.Flags{
		{Group: app.GroupNetwork, Long: "secret", Arg: "NAME[=SOURCE]", Repeat: true, Hide: true, Set: n.addSecret,
			Help: "give the command a placeholder for a credential, in $NAME; SOURCE is env:VARIABLE, file:PATH, vault:[NAMESPACE/]NAME of demesne secret, or cmd:TEXT, which a shell here runs (default env:NAME)"},
		{Group: app.GroupNetwork, Long: "secret-for", Arg: "NAME=HOST[:PORT][:HEADER]", Repeat: true, Set: n.addSecretFor,
			Help: "replace the placeholder by the credential in HTTPS requests to this host, on port 443 or PORT, in all headers or HEADER"},
	}
}

func (n *Network) addSecret(s string) error {
	name, source, named := strings.Cut(s, "=")
	if !app.IsEnvName(name) {
		return errors.New("does not begin with a variable's name")
	}
	if !named {
		source = "env:" + name
	}
	if source == FromVault {
		source += name
	}
	if !IsSource(source) {
		return errors.New("not env:VARIABLE, file:PATH, vault:NAME or cmd:TEXT after '='")
	}
	k := n.secret(name)
	if k.source != "" {
		return errors.New("given twice")
	}
	k.source = source
	return nil
}

// FromVault begins the source of a secret of the vault.
const FromVault = "vault:"

// SecretVariables returns the variables of this environment that have secrets of the flags.
func (n *Network) SecretVariables() (names []string) {
	for _, name := range n.order {
		if variable, found := strings.CutPrefix(n.secrets[name].source, "env:"); found {
			names = append(names, variable)
		}
	}
	return names
}

// IsSource reports whether a word says where a secret is.
func IsSource(s string) bool {
	kind, what, _ := strings.Cut(s, ":")
	return what != "" && (kind == "env" || kind == "file" || kind == "cmd" || kind+":" == FromVault)
}

func (n *Network) addSecretFor(s string) error {
	name, at, found := strings.Cut(s, "=")
	if strings.Contains(at, "://") {
		return text.Hinted(errors.New("is a URL, not a name"), "use only the name: %s=example.com or %s=example.com:8443", name, name)
	}
	host, header, _ := strings.Cut(at, ":")
	switch port, more, _ := strings.Cut(header, ":"); {
	case isPort(port):
		host, header = host+":"+port, more
	case port != "" && strings.Trim(port, "0123456789") == "":
		return fmt.Errorf("port %q: not a number from 1 to 65535", port)
	}
	if !found || !app.IsEnvName(name) || host == "" {
		return errors.New("not NAME=HOST, NAME=HOST:HEADER or NAME=HOST:PORT:HEADER")
	}
	k := n.secret(name)
	if k.host != "" {
		return errors.New("a secret can have only one host")
	}
	k.host, k.header = host, header
	return nil
}

func isPort(s string) bool {
	_, ok := parsePort(s)
	return ok
}

func (n *Network) secret(name string) *secret {
	if n.secrets == nil {
		n.secrets = map[string]*secret{}
	}
	if n.secrets[name] == nil {
		n.secrets[name] = &secret{}
		n.order = append(n.order, name)
	}
	return n.secrets[name]
}

// CheckSecrets returns an error if a flag's counterpart is missing. It reads no values.
func (n *Network) CheckSecrets() error {
	for _, name := range n.order {
		switch k := n.secrets[name]; {
		case k.source == "":
			return text.Hinted(fmt.Errorf("secret-for %q: no such secret", name), "use --secret %s to take it from $%s", name, name)
		case k.host == "" && !strings.HasPrefix(k.source, FromVault):
			return text.Hinted(fmt.Errorf("secret %q: no --secret-for names its host", name), "use --secret-for %s=HOST", name)
		}
	}
	return nil
}

// FindSecrets reads the values of the secrets. It does so only once, because a source may be a command.
func (n *Network) FindSecrets(c *app.Console) error {
	if len(n.found) > 0 {
		return nil
	}
	var all []runner.Secret
	for _, name := range n.order {
		s, err := findSecret(c, name, n.secrets[name])
		if err != nil {
			return fmt.Errorf("secret %q: %w", name, err)
		}
		all = append(all, s)
	}
	n.found = all
	return nil
}

// findSecret reads the value of a secret. One of the vault has its host there, unless a flag names another.
func findSecret(c *app.Console, name string, k *secret) (runner.Secret, error) {
	s := runner.Secret{Name: name, Host: k.host, Header: k.header}
	what, stored := strings.CutPrefix(k.source, FromVault)
	if !stored {
		var err error
		s.Value, err = SecretValue(c, k.source)
		return s, err
	}
	kept, err := app.VaultSecret(what)
	if err != nil {
		return s, err
	}
	if s.Value = kept.Value; s.Host == "" {
		s.Host, s.Header = kept.Host, kept.Header
	}
	if s.Host == "" {
		return s, text.Hinted(errors.New("no host is stored with it"), "use --secret-for %s=HOST", name)
	}
	return s, nil
}

// Hidden returns the values that were read, for redaction.
func (n *Network) Hidden() *redact.Values {
	var values []string
	for _, s := range n.found {
		values = append(values, s.Value)
	}
	return redact.New(values...)
}

// maxSecret bounds a credential in bytes: it has to fit into a header.
const maxSecret = 64 << 10

// SecretValue reads a value, and strips the trailing newline of files and command output.
func SecretValue(c *app.Console, source string) (string, error) {
	kind, what, _ := strings.Cut(source, ":")
	var b []byte
	var err error
	verb := "read"
	switch kind {
	case "env":
		value, ok := c.Env(what)
		if !ok || value == "" {
			return "", fmt.Errorf("$%s is not set", what)
		}
		return value, nil
	case "file":
		b, err = readBounded(what)
	default:
		verb = "run"
		sh := exec.Command("/bin/sh", "-c", what)
		sh.Stdin, sh.Stderr = c.Stdin, c.Stderr
		b, err = sh.Output()
	}
	b = bytes.TrimRight(b, "\r\n")
	switch {
	case err != nil:
		return "", fmt.Errorf("%s %q: %w", verb, what, fsutil.Reason(err))
	case len(b) == 0:
		return "", errors.New("is empty")
	case len(b) > maxSecret:
		return "", fmt.Errorf("longer than %d bytes", maxSecret)
	}
	return string(b), nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSecret+2))
}
