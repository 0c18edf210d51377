package mcp

import (
	"fmt"
	"slices"
	"strings"

	"demesne/session"
)

// SecretName is a credential that models may use without seeing its value.
type SecretName struct {
	Name string // of the variable that holds a placeholder in the sandbox
	Host string // HOST or HOST:PORT that gets the value, and that a sandbox with the credential may reach
}

// secretsField describes the credentials, if there are any.
func (o *Options) secretsField() property {
	f := listOf("secrets", "").also("Names of credentials that the operator offers with DEMESNE_SECRETS. The variable of that name holds a placeholder, which the proxy replaces in HTTPS requests to the credential's host. That host may be reached too.")
	if f.hidden = len(o.Secrets) == 0; f.hidden {
		return f
	}
	var names, hosts []string
	for _, s := range o.Secrets {
		names, hosts = append(names, s.Name), append(hosts, s.Name+" for "+s.Host)
	}
	f.schema["items"] = map[string]any{"type": "string", "enum": names}
	return f.described("Credentials to use, in $NAME, in HTTPS requests to their host: " + strings.Join(hosts, ", ") + ".")
}

// secretsRequest reads the argument secrets. The operator chose the hosts, so no person is asked about them.
func (c *call) secretsRequest(r *session.Request) error {
	names, err := c.args.texts("secrets")
	if err != nil {
		return err
	}
	for _, name := range names {
		at := slices.IndexFunc(c.opts.Secrets, func(s SecretName) bool { return s.Name == name })
		if at < 0 {
			return fmt.Errorf("secrets: %s is not offered here (%s)", clipped(name), c.opts.secretNames())
		}
		if slices.Contains(r.Secrets, name) {
			continue
		}
		r.Secrets = append(r.Secrets, name)
		host := c.opts.Secrets[at].Host
		if !strings.Contains(host, ":") {
			host += ":443"
		}
		r.Create.Egress.Allow = append(r.Create.Egress.Allow, host)
	}
	return nil
}

func (o *Options) secretNames() string {
	if len(o.Secrets) == 0 {
		return "the operator offers none: DEMESNE_SECRETS"
	}
	var names []string
	for _, s := range o.Secrets {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}
