package e2b

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/session"
)

// headerRule is a header that the proxy sets in requests to a host.
type headerRule struct{ host, header, value string }

// hostRule is one rule of a host, in E2B's words.
type hostRule struct {
	Transform struct {
		Headers map[string]string `json:"headers"`
	} `json:"transform"`
}

// Bounds of the rules of a sandbox.
const (
	maxRules    = 100
	longestRule = 8 << 10 // bytes of a header's value
)

// headers returns the headers that the rules set, in an order that depends on nothing else.
func (n *network) headers() (all []headerRule, err error) {
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		if strings.Contains(host, "*") {
			return nil, fmt.Errorf("%w: network: rule for %q: demesne sets headers for whole names only", session.ErrInvalid, host)
		}
		set := map[string]string{}
		for _, r := range n.Rules[host] {
			for name, value := range r.Transform.Headers {
				set[http.CanonicalHeaderKey(name)] = value
			}
		}
		for _, name := range slices.Sorted(maps.Keys(set)) {
			all = append(all, headerRule{strings.ToLower(host), name, set[name]})
		}
	}
	if len(all) > maxRules {
		return nil, fmt.Errorf("%w: network: more than %d headers", session.ErrInvalid, maxRules)
	}
	for _, r := range all {
		if _, _, err := r.parts(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// The SDKs' placeholder of a secret.
const (
	fillBegin = "${e2b.secrets."
	fillEnd   = "}"
)

// parts returns the text of a header with "${}" for the secret that it names. Without a secret the whole text is one.
func (r headerRule) parts() (template, secret string, err error) {
	refuse := func(why string) (string, string, error) {
		return "", "", fmt.Errorf("%w: network: header %s of %q: %s", session.ErrInvalid, r.header, r.host, why)
	}
	before, rest, found := strings.Cut(r.value, fillBegin)
	secret, after, closed := strings.Cut(rest, fillEnd)
	switch {
	case len(r.value) > longestRule:
		return refuse("more than 8 KiB")
	case strings.Contains(r.value, "${e2b.identity."):
		return refuse("demesne has no identity tokens")
	case !found && r.value == "":
		return refuse("is empty")
	case !found:
		return "${}", "", nil
	case !closed || secret == "":
		return refuse("names a secret without }")
	case strings.Contains(before+after, "${"):
		return refuse("has more than one placeholder")
	}
	return before + "${}" + after, secret, nil
}

// credentials returns what the proxy needs for the rules of a sandbox. Values are those that the secrets have now. It
// returns those that it can make also with an error.
func (s *Server) credentials(n *network) (all []runner.Secret, err error) {
	headers, err := n.headers()
	if err != nil {
		return nil, err
	}
	for i, r := range headers {
		template, name, _ := r.parts()
		value := r.value
		if name != "" {
			var verr error
			if value, verr = s.secrets.value(name); verr != nil {
				err = fmt.Errorf("network: header %s of %q: %w", r.header, r.host, verr)
				continue
			}
		}
		all = append(all, runner.Secret{Name: fmt.Sprintf("E2B_HEADER_%d", i+1), Value: value, Host: r.host, Header: r.header, Set: template})
	}
	return all, err
}

// Credentials returns the credentials of a sandbox that is restarted, by its name in the runner.
func (s *Server) Credentials(name string) []runner.Secret {
	id, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return nil
	}
	e := s.store.get(id)
	if e == nil {
		return nil
	}
	n := e.snap().Network
	all, err := s.credentials(&n)
	if err != nil {
		s.opts.Log.Printf("restart sandbox %s: %v", id, err)
	}
	return all
}
