package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// errName is the error for a host that is neither a name nor an address.
var errName = errors.New("not a host name")

// Name is a host name in its canonical spelling. The zero Name is not a name.
type Name struct{ s string }

func (n Name) String() string { return n.s }

// IsZero reports whether n is not a name.
func (n Name) IsZero() bool { return n.s == "" }

// maxName is the longest host name in text, without the trailing dot (RFC 1035).
const maxName = 253

// ParseName returns the canonical spelling of s. It rejects addresses in any spelling: see [ParseHost].
func ParseName(s string) (Name, error) {
	ascii, err := toASCII(s)
	if err != nil {
		return Name{}, fmt.Errorf("parse name %.100q: %w", s, err)
	}
	return Name{ascii}, nil
}

// lookup maps a name as for a DNS lookup, but accepts an underscore, and "--" outside of punycode. Real names
// have both. checkASCII checks the rest.
var lookup = idna.New(idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false), idna.StrictDomainName(false), idna.CheckHyphens(false))

func toASCII(s string) (string, error) {
	if len(s) > 4*maxName || !utf8.ValidString(s) { // no valid name is longer in UTF-8
		return "", because("too long, or not UTF-8")
	}
	for _, r := range s {
		if r <= ' ' || r == 0x7f || strings.ContainsRune(`"#%/:<>?@[\]^{|}`, r) {
			return "", because("contains %q", r)
		}
	}
	ascii, err := lookup.ToASCII(s)
	if err != nil {
		return "", because("%v", err)
	}
	ascii = strings.ToLower(strings.TrimSuffix(ascii, "."))
	return ascii, checkASCII(ascii)
}

// checkASCII rejects names that IDNA accepts, but that a resolver, certificate or URL parser could read
// differently.
func checkASCII(s string) error {
	if s == "" {
		return because("empty")
	}
	if len(s) > maxName {
		return because("longer than %d bytes", maxName)
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if err := checkLabel(l); err != nil {
			return err
		}
	}
	if isNumber(labels[len(labels)-1]) {
		return because("an IP address in a notation that is not accepted")
	}
	return nil
}

func checkLabel(l string) error {
	switch {
	case l == "":
		return because("an empty label")
	case len(l) > 63:
		return because("a label longer than 63 bytes")
	case l[0] == '-' || l[len(l)-1] == '-':
		return because("a label that begins or ends with '-'")
	}
	for _, c := range []byte(l) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return because("contains %q", rune(c))
		}
	}
	return nil
}

// isNumber reports whether inet_aton(3) or a URL parser would read a name with this last label as an IPv4
// address. The label may be decimal, octal or hexadecimal.
func isNumber(l string) bool {
	digits := "0123456789"
	if rest, ok := strings.CutPrefix(l, "0x"); ok {
		l, digits = rest, digits+"abcdef"
	}
	return strings.Trim(l, digits) == ""
}

// under reports whether n is below zone. api.example.com is below example.com; example.com itself is not.
func (n Name) under(zone Name) bool {
	rest, ok := strings.CutSuffix(n.s, "."+zone.s)
	return ok && rest != "" && zone.s != ""
}

// ParseHost parses a host from a URL or a request. It accepts a name, an IPv4 address in dotted decimal, and an
// IPv6 address with or without brackets. It rejects zones. It returns a v4-mapped address as the IPv4 address,
// which is what it is on the wire.
func ParseHost(s string) (Name, netip.Addr, error) {
	inner := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		inner = s[1 : len(s)-1]
	}
	a, err := netip.ParseAddr(inner)
	switch {
	case err != nil || (inner != s && a.Is4()):
		n, err := ParseName(s)
		return n, netip.Addr{}, err
	case a.Zone() != "":
		return Name{}, netip.Addr{}, fmt.Errorf("parse address %.100q: %w", s, because("an IPv6 zone is not accepted"))
	}
	return Name{}, a.Unmap(), nil
}

func because(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errName}, args...)...)
}
