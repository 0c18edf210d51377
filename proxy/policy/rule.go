package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// errRule is the error that every malformed rule wraps.
var errRule = errors.New("malformed rule")

// Rule is one line of a policy; see the package comment for its syntax. It is immutable. The zero Rule covers
// nothing.
type Rule struct {
	text    string       // to show to people
	words   string       // the first word that ParseRule was given
	name    Name         // exactly this name,
	zone    Name         // or every name under this one,
	prefix  netip.Prefix // or these addresses,
	all     bool         // or everything
	ports   []ports      // none: 80 and 443 to allow, every port to deny
	every   bool         // every port
	raw     bool
	private bool
	ech     bool
	methods []string // none: every method
	path    string   // "": every path
	budget  Budget
}

type ports struct{ from, to uint16 }

// Budget bounds the traffic that one rule lets through, over the life of a sandbox. Zero means no bound.
type Budget struct {
	Bytes       int64 // both directions together
	Requests    int64 // HTTP requests that can be read
	Connections int64
}

func (r Rule) String() string { return r.text }

// Budget returns the rule's bounds.
func (r Rule) Budget() Budget { return r.budget }

// Name returns the rule's name. It returns false unless the rule covers exactly one name.
func (r Rule) Name() (Name, bool) { return r.name, !r.name.IsZero() }

// ParseRule parses one rule in words.
func ParseRule(s string) (Rule, error) {
	first, more, narrowed := strings.Cut(s, " ")
	r := Rule{text: first, words: first}
	rest, raw := strings.CutPrefix(first, "tcp://")
	r.raw = raw
	host, portList, err := splitPorts(rest)
	if err == nil {
		r.ports, err = parsePorts(portList)
		r.every = portList == "*"
	}
	if err == nil {
		err = r.setHost(host)
	}
	if err == nil && narrowed {
		r, err = r.options(strings.Split(more, " "))
	}
	if err != nil {
		return Rule{}, fmt.Errorf("parse rule %.200q: %w", s, err)
	}
	return r, nil
}

// Everything returns a rule that covers every name and every address.
func Everything() Rule { return Rule{text: "*", all: true, every: true} }

// splitPorts separates the ports from the host. An IPv6 address with ports must be in brackets; a range of addresses
// needs none, because its ports follow its bits.
func splitPorts(s string) (host, list string, err error) {
	if _, err := netip.ParseAddr(s); err == nil {
		return s, "", nil
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return s, "", nil
	}
	var end int // of the part before the colon of the ports
	if rest, ok := strings.CutPrefix(s, "["); ok {
		inner, after, ok := strings.Cut(rest, "]")
		bits, _, _ := strings.Cut(after, ":")
		if !ok || (bits != "" && !strings.HasPrefix(bits, "/")) {
			return "", "", fmt.Errorf("%w: expected ']' and at most /BITS after it", errRule)
		}
		host, end = inner+bits, len(s)-len(after)+len(bits)
	} else {
		from := 0
		if slash := strings.IndexByte(s, '/'); slash >= 0 {
			if _, err := netip.ParseAddr(s[:slash]); err == nil {
				from = slash
			}
		}
		before, _, _ := strings.Cut(s[from:], ":")
		host, end = s[:from]+before, from+len(before)
	}
	if s[end:] == ":" {
		return "", "", fmt.Errorf("%w: no port after ':'", errRule)
	}
	return host, strings.TrimPrefix(s[end:], ":"), nil
}

func parsePorts(list string) ([]ports, error) {
	if list == "" || list == "*" {
		return nil, nil
	}
	var all []ports
	for p := range strings.SplitSeq(list, ",") {
		a, b, isRange := strings.Cut(p, "-")
		if !isRange {
			b = a
		}
		from, err1 := parsePort(a)
		to, err2 := parsePort(b)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%w: port %q is not in 1-65535", errRule, p)
		}
		if from > to {
			return nil, fmt.Errorf("%w: port range %q is reversed", errRule, p)
		}
		all = append(all, ports{from, to})
	}
	return all, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && (n == 0 || s[0] < '1') {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

func (r *Rule) setHost(host string) (err error) {
	if p, err := netip.ParsePrefix(host); err == nil {
		return r.setPrefix(p)
	}
	if zone, ok := strings.CutPrefix(host, "*."); ok {
		return r.setZone(zone)
	}
	if strings.Contains(host, "*") {
		return fmt.Errorf("%w: '*' replaces whole leading labels, as in *.example.com", errRule)
	}
	name, addr, err := ParseHost(host)
	if addr.IsValid() {
		return r.setPrefix(netip.PrefixFrom(addr, addr.BitLen()))
	}
	r.name = name
	return err
}

func (r *Rule) setPrefix(p netip.Prefix) error {
	if p.Masked() != p {
		return fmt.Errorf("%w: %v has bits set after its prefix: write %v", errRule, p, p.Masked())
	}
	if p.Addr().Is4In6() {
		return fmt.Errorf("%w: write the address in IPv4 notation", errRule)
	}
	r.prefix = p
	return nil
}

// setZone rejects a public suffix, because anyone can register a name below it. That includes the suffixes of
// companies (*.github.io). It accepts a top-level domain that no registry sells (*.corp, *.test).
func (r *Rule) setZone(s string) error {
	zone, err := ParseName(s)
	if err != nil {
		return err
	}
	if suffix, icann := publicsuffix.PublicSuffix(zone.s); suffix == zone.s && (icann || strings.Contains(suffix, ".")) {
		return fmt.Errorf("%w: %q is a public suffix: anyone can register a name below it", errRule, zone.s)
	}
	r.zone = zone
	return nil
}

// Private returns r, whose name may also resolve to internal addresses, for example in a company network.
// Loopback, link-local and metadata addresses remain denied.
func (r Rule) Private() Rule {
	r.private = true
	return r
}

// ECH returns r with encrypted ClientHellos allowed, as long as the outer name is r's. The encrypted name cannot
// be seen: it may be any that the server at that address has keys for.
func (r Rule) ECH() Rule {
	r.ech = true
	return r
}

// Limited returns r with a budget.
func (r Rule) Limited(b Budget) Rule {
	r.budget = b
	return r
}

// Requests returns r for these methods and paths only. A pattern is an exact path, or ends in /* for all paths
// below it. No methods means all methods, and an empty pattern all paths.
func (r Rule) Requests(methods []string, pattern string) (Rule, error) {
	for _, m := range methods {
		if m == "" || strings.ToUpper(m) != m || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return Rule{}, fmt.Errorf("parse method %q: %w: use upper-case letters", m, errRule)
		}
	}
	if fixed := strings.TrimSuffix(pattern, "/*"); pattern != "" && fixed != "" &&
		(fixed[0] != '/' || path.Clean(fixed) != fixed || strings.Contains(fixed, "*")) {
		return Rule{}, fmt.Errorf("parse path %q: %w: write /exact or /below/*", pattern, errRule)
	}
	if strings.ContainsFunc(pattern, func(c rune) bool { return c <= ' ' }) {
		return Rule{}, fmt.Errorf("parse path %q: %w: write a space as %%20", pattern, errRule)
	}
	if r.raw && (pattern != "" || len(methods) > 0) {
		return Rule{}, fmt.Errorf("narrow rule %q: %w: a tcp:// rule has no HTTP requests", r, errRule)
	}
	r.methods, r.path = slices.Clone(methods), pattern
	if len(methods) > 0 {
		r.text = strings.Join(methods, ",") + " " + r.text
	}
	r.text += pattern
	return r, nil
}
