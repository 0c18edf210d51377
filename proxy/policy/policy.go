package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// Query is what somebody inside wants: a name or an address, a port, and, where the
// request can be read, its method and path as sent.
type Query struct {
	Name   Name
	Addr   netip.Addr // when there is no name
	Port   uint16
	Method string
	Path   string
	Later  bool // a connection whose requests will each be asked about
}

// Ask makes the query for a host and port.
func Ask(host string, port uint16) (Query, error) {
	name, addr, err := ParseHost(host)
	return Query{Name: name, Addr: addr, Port: port}, err
}

// Host is the name or the address, as one writes it before a port.
func (q Query) Host() string {
	if q.Addr.IsValid() {
		return q.Addr.String()
	}
	return q.Name.String()
}

// Decision is an answer and why. The zero Decision says no.
type Decision struct {
	Allowed bool
	Unknown bool   // no rule is about the name and the port: a person may be asked
	Rule    Rule   // that decided, the first of several; the zero Rule if none did
	Reason  string // for people

	raw, private, ech bool // as any of several rules says
}

// Raw says that any protocol may be spoken, also on the ports of TLS and HTTP.
func (d Decision) Raw() bool { return d.raw }

// ECH says that a ClientHello for the name may have an encrypted one inside; see [Rule.ECH].
func (d Decision) ECH() bool { return d.ech }

// Policy is an immutable list of rules. The zero Policy denies everything.
type Policy struct{ deny, allow []Rule }

// Allow gives p with further rules that allow.
func (p Policy) Allow(rules ...Rule) Policy {
	p.allow = slices.Concat(p.allow, rules)
	return p
}

// Deny gives p with rules that deny, whatever else allows.
func (p Policy) Deny(rules ...Rule) Policy {
	p.deny = slices.Concat(p.deny, rules)
	return p
}

// Allowed gives the rules that allow, and Denied those that deny, in order.
func (p Policy) Allowed() []Rule { return slices.Clone(p.allow) }

// Denied gives the rules that deny, in order.
func (p Policy) Denied() []Rule { return slices.Clone(p.deny) }

// Decide says whether q may be tried. For a name that is not the last word: see
// [Policy.Dial].
func (p Policy) Decide(q Query) Decision {
	if q.Name.IsZero() == !q.Addr.IsValid() {
		return Decision{Reason: "neither a name nor an address"}
	}
	for _, r := range p.deny {
		if r.coversHost(q) && r.deniesPort(q.Port) && r.deniesRequest(q) {
			return Decision{Rule: r, Reason: fmt.Sprintf("denied by rule %q", r)}
		}
	}
	d := Decision{Unknown: true, Reason: "no rule"}
	for _, r := range p.allow {
		if !r.coversHost(q) {
			continue
		}
		switch why := r.refusal(q); {
		case why != "" && !d.Allowed:
			d = Decision{Rule: r, Reason: why, Unknown: d.Unknown && !r.allowsPort(q.Port)}
		case why == "" && !d.Allowed:
			d = Decision{Allowed: true, Rule: r, Reason: fmt.Sprintf("allowed by rule %q", r), raw: r.raw, private: r.private, ech: r.ech}
		case why == "":
			d.raw, d.private, d.ech = d.raw || r.raw, d.private || r.private, d.ech || r.ech
		}
	}
	if d.Allowed && q.Addr.IsValid() { // by a rule for everything, perhaps
		return p.at(d, q, q.Addr)
	}
	return d
}

// deniesRequest says whether a deny rule for q's host and port denies q: what cannot be
// read might be what it denies.
func (r Rule) deniesRequest(q Query) bool {
	return !r.narrowed() || (!q.Later && (q.Method == "" || r.coversRequest(q)))
}

// refusal says why a rule that speaks of q's host does not allow q, or "".
func (r Rule) refusal(q Query) string {
	switch {
	case !r.allowsPort(q.Port) && len(r.ports) == 0:
		return fmt.Sprintf("rule %q, which names no port, is for 80 and 443, not for %d", r, q.Port)
	case !r.allowsPort(q.Port):
		return fmt.Sprintf("rule %q is not for port %d", r, q.Port)
	case q.Later:
	case r.narrowed() && q.Method == "":
		return fmt.Sprintf("rule %q needs to see the request, which is encrypted", r)
	case r.narrowed() && !r.coversRequest(q):
		return fmt.Sprintf("rule %q is not for %s %.200q", r, q.Method, q.Path)
	}
	return ""
}

// Dial says whether q, which was allowed by d, may be reached at the address that was
// found for it. It is to be asked of the very address that is dialled.
func (p Policy) Dial(d Decision, q Query, found netip.Addr) Decision {
	if !d.Allowed {
		return d
	}
	found = found.Unmap().WithZone("")
	for _, r := range p.deny {
		if r.prefix.IsValid() && r.prefix.Contains(found) && r.deniesPort(q.Port) {
			return Decision{Rule: r, Reason: fmt.Sprintf("%s leads to %v: denied by rule %q", q.Host(), found, r)}
		}
	}
	return p.at(d, q, found)
}

// at keeps d if the address is public, or named.
func (p Policy) at(d Decision, q Query, a netip.Addr) Decision {
	class := Classify(a)
	if inner, ok := Carried(a); ok && p.named(q, a, class) {
		a, class = inner, Classify(inner) // the way there is fine; is where it ends?
	}
	switch {
	case class == Public || p.named(q, a, class):
		return d
	case d.private && (class == Private || class == Shared):
		return d
	}
	return Decision{Rule: d.Rule, Reason: fmt.Sprintf("%s leads to %v (%s), which no rule names", q.Host(), a, class)}
}

// named says whether an address rule covers a. A range that contains a metadata service
// by chance does not name it.
func (p Policy) named(q Query, a netip.Addr, class Class) bool {
	return slices.ContainsFunc(p.allow, func(r Rule) bool {
		return r.prefix.IsValid() && r.prefix.Contains(a) && r.allowsPort(q.Port) &&
			(class != Metadata || r.prefix.IsSingleIP())
	})
}

// Resolves says whether a sandbox may learn that name exists: whether any port of it
// may be tried.
func (p Policy) Resolves(name Name) Decision {
	q := Query{Name: name}
	for _, r := range p.deny {
		if r.coversHost(q) && len(r.ports) == 0 && !r.narrowed() {
			return Decision{Rule: r, Reason: fmt.Sprintf("denied by rule %q", r)}
		}
	}
	for _, r := range p.allow {
		if r.coversHost(q) {
			return Decision{Allowed: true, Rule: r, Reason: fmt.Sprintf("allowed by rule %q", r)}
		}
	}
	return Decision{Unknown: true, Reason: "no rule"}
}

// Names says whether an address rule covers a on q's port, so that it may be reached
// although it is not public.
func (p Policy) Names(q Query, a netip.Addr) bool { return p.named(q, a.Unmap(), Classify(a)) }

// usual are the ports that a rule for every port is most likely about: those of the web, git,
// ssh, mail and databases.
var usual = []uint16{22, 25, 80, 443, 465, 587, 993, 1433, 3306, 5432, 6379, 8080, 8443, 9418, 27017}

// maxRange bounds the ports of one range that Ports lists.
const maxRange = 64

// Ports lists ports that the rules are about, for who can only listen on some: those named,
// the first of long ranges, those of the web for rules that name none, and usual ones for rules for every port.
func (p Policy) Ports() []uint16 {
	var all []uint16
	for _, r := range p.allow {
		switch {
		case r.every:
			all = append(all, usual...)
		case len(r.ports) == 0:
			all = append(all, web...)
		}
		for _, s := range r.ports {
			for port := int(s.from); port <= min(int(s.to), int(s.from)+maxRange-1); port++ {
				all = append(all, uint16(port))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
