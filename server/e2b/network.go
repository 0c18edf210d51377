package e2b

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"demesne/session"
)

// network is what a sandbox may reach, in E2B's words.
type network struct {
	AllowOut []string              `json:"allowOut,omitempty"`
	DenyOut  []string              `json:"denyOut,omitempty"`
	Rules    map[string][]hostRule `json:"rules,omitempty"`
	Proxy    any                   `json:"egressProxy,omitempty"`
	Public   *bool                 `json:"allowPublicTraffic,omitempty"`
	MaskHost string                `json:"maskRequestHost,omitempty"`
	Internet *bool                 `json:"allow_internet_access,omitempty"`
}

// everything is the selector of all destinations.
const everything = "0.0.0.0/0"

// zero reports whether n asks for nothing in particular.
func (n *network) zero() bool {
	return len(n.AllowOut) == 0 && len(n.DenyOut) == 0 && n.Internet == nil
}

// open reports whether what no selector names can be reached.
func (n *network) open() bool {
	return (n.Internet == nil || *n.Internet) && !slices.Contains(n.DenyOut, everything)
}

// maskedHost returns the host name that a program which listens on a port of the sandbox sees in requests. It is empty if the
// program sees the request's own.
func (n *network) maskedHost(port uint16) string {
	return strings.ReplaceAll(n.MaskHost, "${PORT}", strconv.Itoa(int(port)))
}

// rules translates n; widest is the mode with everything that the operator allows. With E2B allowOut overrides denyOut, and
// with demesne's policy a denial overrides. So a denial that is also allowed is left out, and a range of which only a part is
// allowed cannot be expressed.
func (n *network) rules(widest string) (to session.Egress, err error) {
	if n.Proxy != nil {
		return to, fmt.Errorf("%w: network: egressProxy is not supported by demesne", session.ErrInvalid)
	}
	if _, err := n.headers(); err != nil {
		return to, err
	}
	if mask := n.maskedHost(1); mask != "" {
		if u, err := url.Parse("http://" + mask); err != nil || u.Host != mask {
			return to, fmt.Errorf("%w: network: maskRequestHost %q: not a host name", session.ErrInvalid, n.MaskHost)
		}
	}
	to.Gateway = true // updateNetwork may open what is closed
	if n.open() {
		to.Mode = widest
	}
	for _, word := range n.AllowOut {
		if word == everything {
			to.Mode = widest
			continue
		}
		rule, err := rule(word)
		if err != nil {
			return to, err
		}
		to.Allow = append(to.Allow, rule)
	}
	for _, word := range n.DenyOut {
		if word == everything || slices.Contains(n.AllowOut, word) {
			continue
		}
		r, err := prefixOf(word)
		if err != nil {
			return to, fmt.Errorf("%w: denyOut %q: not an address or a range", session.ErrInvalid, word)
		}
		for _, other := range n.AllowOut {
			if p, err := prefixOf(other); err == nil && p.Overlaps(r) {
				return to, fmt.Errorf("%w: network: %q is allowed and %q denied, which overlap: demesne denies then", session.ErrInvalid, other, word)
			}
		}
		to.Deny = append(to.Deny, address(r))
	}
	return to, nil
}

// rule translates a selector of allowOut.
func rule(word string) (string, error) {
	if p, err := prefixOf(word); err == nil {
		return address(p) + ":*", nil
	}
	if word == "" || strings.ContainsAny(word, " \t\n=/") {
		return "", fmt.Errorf("%w: allowOut %q: not a name, an address or a range", session.ErrInvalid, word)
	}
	return word, nil
}

func prefixOf(word string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(word); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(word)
}

// address formats a range as rules of package policy have it.
func address(p netip.Prefix) string {
	text := p.String()
	if p.IsSingleIP() {
		text = p.Addr().String()
	}
	if p.Addr().Is6() {
		text = "[" + text + "]"
	}
	return text
}

// network replaces all rules.
func (s *Server) network(w http.ResponseWriter, r *http.Request) error {
	var n network
	e, err := s.found(r, &n)
	if err != nil {
		return err
	}
	if !e.running() {
		return errPaused
	}
	rules, err := n.rules(s.opts.Backend.Widest())
	if was := e.snap().Network; err == nil && !reflect.DeepEqual(was.Rules, n.Rules) {
		err = fmt.Errorf("%w: network: demesne sets the rules of a sandbox when it is made: pass the same ones", session.ErrInvalid)
	}
	if err == nil {
		err = s.opts.Backend.Reach(r.Context(), e.rec.name(), rules)
	}
	if err == nil {
		was := e.snap().Network // an update has only rules
		n.Public, n.MaskHost = was.Public, was.MaskHost
		err = e.change(func(r *record) { r.Network = n })
	}
	if err != nil {
		return err
	}
	return empty(w)
}
