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

// Secret is a credential that a sandbox can use without ever seeing its value. The sandbox has a placeholder. The
// proxy replaces it by the value in requests to one host over TLS. For that host it ends TLS with a certificate
// of the sandbox's own CA ([Proxy.CA]). It blanks the value in that host's responses, as it is or in a form that
// package redact knows. It does not defend against a host that returns the value in another form.
type Secret struct {
	name, value, placeholder string
	host                     policy.Name
	port                     uint16
	header                   string // canonical; "": any
	set                      string // of every request, with the value; "": only placeholders are replaced
}

// NewSecret returns a secret with a new random placeholder. at is a host or host:port; the default port is 443.
// An empty header means any header.
func NewSecret(name, value, at, header string) (Secret, error) {
	q, err := secretAt(at)
	switch {
	case err != nil:
		return Secret{}, fmt.Errorf("make secret %q: %w", name, err)
	case value == "" || !httpguts.ValidHeaderFieldValue(value):
		return Secret{}, fmt.Errorf("make secret %q: its value is empty, or not valid in a header", name)
	case header != "" && !httpguts.ValidHeaderFieldName(header):
		return Secret{}, fmt.Errorf("make secret %q: %q is not a header name", name, header)
	}
	return Secret{name, value, "demesne-" + strings.ToLower(rand.Text()), q.Name, q.Port, http.CanonicalHeaderKey(header), ""}, nil
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

// Setting returns s for a proxy that sets the header in every request to the host. template contains "${}" once, for the
// value.
func (s Secret) Setting(template string) (Secret, error) {
	switch {
	case s.header == "" || strings.Count(template, "${}") != 1:
		return s, fmt.Errorf("make secret %q: set needs a header, and a text with ${} once", s.name)
	case !settable(s.header):
		return s, fmt.Errorf("make secret %q: %s belongs to the connection", s.name, s.header)
	}
	s.set = strings.Replace(template, "${}", s.value, 1)
	if !httpguts.ValidHeaderFieldValue(s.set) {
		return s, fmt.Errorf("make secret %q: set is not valid in a header", s.name)
	}
	return s, nil
}

// settable reports whether a header says nothing about the connection or the length of the body.
func settable(header string) bool {
	switch header {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Keep-Alive", "Proxy-Connection", "Accept-Encoding":
		return false
	}
	return true
}

// Placeholder returns the text that stands for the value inside the sandbox.
func (s Secret) Placeholder() string { return s.placeholder }

// WithPlaceholder returns s with the placeholder that the sandbox already has.
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

// isFor reports whether the secret is for q's name and port.
func (s Secret) isFor(q policy.Query) bool { return s.host == q.Name && s.port == q.Port }

func (all secrets) has(q policy.Query) bool {
	return slices.ContainsFunc(all, func(s Secret) bool { return s.isFor(q) })
}

// name reports whether a secret is for that name, on any port.
func (all secrets) name(n policy.Name) bool {
	return slices.ContainsFunc(all, func(s Secret) bool { return s.host == n })
}

// errMisused marks a placeholder that was found where it may not be sent.
var errMisused = errors.New("misplaced secret placeholder")

// swap replaces the placeholders in a request to q by their values, in headers only, and sets the headers of [Secret.Setting].
// It returns an error when a placeholder may not be sent there. It leaves the body unchanged, with any placeholders in it.
func (all secrets) swap(r *http.Request, q policy.Query, encrypted bool) error {
	for _, s := range all {
		if strings.Contains(r.RequestURI, s.placeholder) || strings.Contains(r.URL.String(), s.placeholder) {
			return fmt.Errorf("%w: %q in the URL", errMisused, s.name)
		}
		for key, values := range r.Header {
			for i, v := range values {
				swapped, found := s.in(v)
				switch {
				case !found:
					continue
				case !encrypted:
					return fmt.Errorf("%w: %q may be sent over TLS only", errMisused, s.name)
				case !s.isFor(q):
					return fmt.Errorf("%w: %q may be sent to %s:%d only", errMisused, s.name, s.host, s.port)
				case s.header != "" && key != s.header:
					return fmt.Errorf("%w: %q may be sent in the header %s only", errMisused, s.name, s.header)
				}
				values[i] = swapped
			}
		}
	}
	for _, s := range all {
		if s.set != "" && encrypted && s.isFor(q) {
			r.Header.Set(s.header, s.set)
		}
	}
	return nil
}

// in replaces the placeholder in a header's value, also within HTTP basic authentication, as git and pip use it.
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
