package proxy

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"demesne/proxy/policy"
	"demesne/proxy/redact"
)

// Secret is a credential that a sandbox uses without having it. Inside there is a
// placeholder; the proxy puts the value in its place in requests to one host over TLS,
// which it ends for that host with a certificate of the sandbox's own CA ([Proxy.CA]).
// What that host sends back of it, as it is or in one of the forms that package redact knows,
// is blanked; a host that sends it back in another one is not defended against.
type Secret struct {
	name, value, placeholder string
	host                     policy.Name
	port                     uint16
	header                   string // canonical; "": any
}

// NewSecret makes a secret with a new placeholder. at is a host, or a host and a port where that
// is not 443; header may be "", for any.
func NewSecret(name, value, at, header string) (Secret, error) {
	q, err := secretAt(at)
	switch {
	case err != nil:
		return Secret{}, fmt.Errorf("make secret %q: %w", name, err)
	case value == "" || !httpguts.ValidHeaderFieldValue(value):
		return Secret{}, fmt.Errorf("make secret %q: its value is empty, or cannot be in a header", name)
	case header != "" && !httpguts.ValidHeaderFieldName(header):
		return Secret{}, fmt.Errorf("make secret %q: no header has the name %q", name, header)
	}
	return Secret{name, value, "demesne-" + strings.ToLower(rand.Text()), q.Name, q.Port, http.CanonicalHeaderKey(header)}, nil
}

func secretAt(s string) (q policy.Query, err error) {
	host, _, found := strings.Cut(s, ":")
	if q.Port = 443; found {
		if q, err = splitTarget(s); err != nil {
			return q, err
		}
	}
	q.Name, err = policy.ParseName(host)
	return q, err
}

// Placeholder is what stands for the value inside.
func (s Secret) Placeholder() string { return s.placeholder }

// WithPlaceholder is s with the placeholder that a sandbox has already.
func (s Secret) WithPlaceholder(placeholder string) Secret {
	s.placeholder = placeholder
	return s
}

func (s Secret) String() string { return s.name }

// GoString keeps the value out of %#v too.
func (s Secret) GoString() string { return "proxy.Secret(" + s.name + ")" }

type secrets []Secret

func (all secrets) values() *redact.Values {
	var values []string
	for _, s := range all {
		values = append(values, s.value)
	}
	return redact.New(values...)
}

// isFor says whether q is about where the secret goes.
func (s Secret) isFor(q policy.Query) bool { return s.host == q.Name && s.port == q.Port }

func (all secrets) has(q policy.Query) bool {
	return slices.ContainsFunc(all, func(s Secret) bool { return s.isFor(q) })
}

// errMisused wraps why a placeholder may not go where it was found.
var errMisused = errors.New("a placeholder in the wrong place")

// swap puts values in place of placeholders in a request to where q says, or says which one
// must not be there. A body is sent as it is: with placeholders.
func (all secrets) swap(r *http.Request, q policy.Query, encrypted bool) error {
	for _, s := range all {
		if strings.Contains(r.RequestURI, s.placeholder) || strings.Contains(r.URL.String(), s.placeholder) {
			return fmt.Errorf("%w: that of %q is in the URL", errMisused, s.name)
		}
		for key, values := range r.Header {
			for i, v := range values {
				swapped, found := s.in(v)
				switch {
				case !found:
					continue
				case !encrypted:
					return fmt.Errorf("%w: that of %q goes over TLS only", errMisused, s.name)
				case !s.isFor(q):
					return fmt.Errorf("%w: that of %q is for %s:%d only", errMisused, s.name, s.host, s.port)
				case s.header != "" && key != s.header:
					return fmt.Errorf("%w: that of %q is for the header %s only", errMisused, s.name, s.header)
				}
				values[i] = swapped
			}
		}
	}
	return nil
}

// in looks for the placeholder in the value of a header, also in basic authentication,
// where git, pip and others put it.
func (s Secret) in(v string) (swapped string, found bool) {
	if strings.Contains(v, s.placeholder) {
		return strings.ReplaceAll(v, s.placeholder, s.value), true
	}
	kind, coded, _ := strings.Cut(v, " ")
	if !strings.EqualFold(kind, "Basic") {
		return v, false
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
	if err != nil || !strings.Contains(string(plain), s.placeholder) {
		return v, false
	}
	return kind + " " + base64.StdEncoding.EncodeToString([]byte(strings.ReplaceAll(string(plain), s.placeholder, s.value))), true
}
