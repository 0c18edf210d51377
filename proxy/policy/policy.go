package policy

import (
	"fmt"
	"net/netip"
	"slices"
)

// Query is a connection or request that the sandbox attempts. It has a name or an address, and a port. If the
// request can be read, it also has its method and its path as sent.
type Query struct {
	Name   Name
	Addr   netip.Addr // set if there is no name
	Port   uint16
	Method string
	Path   string
	Later  bool // a connection whose requests will each be decided on
}

// Ask returns the query for a host and port.
func Ask(host string, port uint16) (Query, error) {
	name, addr, err := ParseHost(host)
	return Query{Name: name, Addr: addr, Port: port}, err
}

// Host returns the name or the address, as it is written before a port.
func (q Query) Host() string {
	if q.Addr.IsValid() {
		return q.Addr.String()
	}
	return q.Name.String()
}

// Decision is an answer and its reason. The zero Decision denies.
type Decision struct {
	Allowed bool
	Unknown bool   // no rule covers the name and the port, so a person may be asked
	Rule    Rule   // the first rule that decided; the zero Rule if none did
	Reason  string // to show to people
	Group   string // the destination is a sandbox of this group, see [Policy.Member]
	Allow   string // the rule that would allow it, if one rule would and it is not the address of a metadata service

	raw, private, ech bool // set if any of the matching rules sets it
}

// Raw reports whether any protocol may be spoken, even on the ports of TLS and HTTP.
func (d Decision) Raw() bool { return d.raw }

// ECH reports whether a ClientHello for the name may contain an encrypted one; see [Rule.ECH].
func (d Decision) ECH() bool { return d.ech }

// Policy is an immutable list of rules. The zero Policy denies everything.
type Policy struct{ deny, allow []Rule }

// Allow returns p with further allow rules.
func (p Policy) Allow(rules ...Rule) Policy {
	p.allow = slices.Concat(p.allow, rules)
	return p
}

// Deny returns p with further deny rules. They take precedence over all allow rules.
func (p Policy) Deny(rules ...Rule) Policy {
	p.deny = slices.Concat(p.deny, rules)
	return p
}

// Allowed returns the allow rules in order.
func (p Policy) Allowed() []Rule { return slices.Clone(p.allow) }

// Denied returns the deny rules in order.
func (p Policy) Denied() []Rule { return slices.Clone(p.deny) }

// Decide decides whether q may be attempted. If q has a name, [Policy.Dial] must also allow the address found.
func (p Policy) Decide(q Query) Decision {
	if q.Name.IsZero() == !q.Addr.IsValid() {
		return Decision{Reason: "neither a name nor an address"}
	}
	for _, r := range p.deny {
		if r.coversHost(q) && r.deniesPort(q.Port) && r.deniesRequest(q) {
			return Decision{Rule: r, Reason: fmt.Sprintf("denied by rule %q", r)}
		}
	}
	d := Decision{Unknown: true, Reason: "no rule", Allow: q.remedy()}
	for _, r := range p.allow {
		if !r.coversHost(q) {
			continue
		}
		switch why := r.refusal(q); {
		case why != "" && !d.Allowed:
			d = Decision{Rule: r, Reason: why, Unknown: d.Unknown && !r.allowsPort(q.Port)}
			if !r.allowsPort(q.Port) {
				d.Allow = q.remedy()
			}
		case why == "" && !d.Allowed:
			d = Decision{Allowed: true, Rule: r, Reason: fmt.Sprintf("allowed by rule %q", r), raw: r.raw, private: r.private, ech: r.ech}
		case why == "":
			d.raw, d.private, d.ech = d.raw || r.raw, d.private || r.private, d.ech || r.ech
		}
	}
	if d.Allowed && q.Addr.IsValid() { // possibly by a rule for everything
		return p.at(d, q, q.Addr)
	}
	return d
}

// deniesRequest reports whether a deny rule for q's host and port denies q. A request that cannot be read counts
// as denied. A connection whose requests are each decided on later does not.
func (r Rule) deniesRequest(q Query) bool {
	return !r.narrowed() || (!q.Later && (q.Method == "" || r.coversRequest(q)))
}

// refusal returns why a rule that covers q's host does not allow q, or "".
func (r Rule) refusal(q Query) string {
	switch {
	case !r.allowsPort(q.Port) && len(r.ports) == 0:
		return fmt.Sprintf("rule %q names no port, so it covers 80 and 443, not %d", r, q.Port)
	case !r.allowsPort(q.Port):
		return fmt.Sprintf("rule %q does not cover port %d", r, q.Port)
	case q.Later:
	case r.narrowed() && q.Method == "":
		return fmt.Sprintf("rule %q needs to see the request, which is encrypted", r)
	case r.narrowed() && !r.coversRequest(q):
		return fmt.Sprintf("rule %q does not cover %s %.200q", r, q.Method, q.Path)
	}
	return ""
}

// Member decides about q if its name belongs to a sandbox in a group. A query for a name has port 0. Any protocol is allowed.
// ok is false if an allow rule has exactly this name, which then names a host.
func (p Policy) Member(q Query, group string) (d Decision, ok bool) {
	if slices.ContainsFunc(p.allow, func(r Rule) bool { return r.name == q.Name }) {
		return d, false
	}
	for _, r := range p.deny {
		if r.coversHost(q) && r.deniesPort(q.Port) && (q.Port == 0 && !r.narrowed() || q.Port != 0 && r.deniesRequest(q)) {
			return Decision{Rule: r, Reason: fmt.Sprintf("denied by rule %q", r)}, true
		}
	}
	return Decision{Allowed: true, Group: group, Reason: fmt.Sprintf("%s is in group %q", q.Name, group), raw: true}, true
}

// Dial decides whether q, which d allowed, may be reached at the address that was found for it. The caller must
// dial exactly that address.
func (p Policy) Dial(d Decision, q Query, found netip.Addr) Decision {
	if !d.Allowed {
		return d
	}
	found = found.Unmap().WithZone("")
	for _, r := range p.deny {
		if r.prefix.IsValid() && r.prefix.Contains(found) && r.deniesPort(q.Port) {
			return Decision{Rule: r, Reason: fmt.Sprintf("%s resolves to %v: denied by rule %q", q.Host(), found, r)}
		}
	}
	return p.at(d, q, found)
}

// at returns d if the address is public, an address rule covers it, or it is private and d allows that.
func (p Policy) at(d Decision, q Query, a netip.Addr) Decision {
	class := Classify(a)
	if inner, ok := carried(a); ok && p.named(q, a, class) {
		a, class = inner, Classify(inner) // the outer address is allowed; check the inner one
	}
	switch {
	case class == classPublic || p.named(q, a, class):
		return d
	case d.private && slices.Contains(internal, class):
		return d
	}
	return d.Unlisted(q, a, string(class))
}

// internal are the classes of addresses that a network's operator gives to servers of that network. No public network has
// them.
var internal = []Class{classPrivate, classShared, classDocumentation}

// Unlisted denies q, which d allowed, because no rule lists the address that was found for it. whose describes the
// address.
func (d Decision) Unlisted(q Query, found netip.Addr, whose string) Decision {
	return Decision{Rule: d.Rule, Reason: fmt.Sprintf("%s resolves to %v (%s), which no rule lists", q.Host(), found, whose),
		Allow: Query{Addr: found, Port: q.Port}.remedy()}
}

// remedy returns the rule for exactly this host and port, or for both ports of the web. It returns "" for the address of
// a metadata service, which hands out credentials.
func (q Query) remedy() string {
	host := q.Host()
	if q.Addr.IsValid() && Classify(q.Addr) == classMetadata {
		return ""
	}
	if q.Port == 0 || slices.Contains(web, q.Port) {
		return host
	}
	if q.Addr.Is6() {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s:%d", host, q.Port)
}

// named reports whether an address rule covers a. For a metadata service only a rule for a single address counts,
// not a range that contains it.
func (p Policy) named(q Query, a netip.Addr, class Class) bool {
	return slices.ContainsFunc(p.allow, func(r Rule) bool {
		return r.prefix.IsValid() && r.prefix.Contains(a) && r.allowsPort(q.Port) &&
			(class != classMetadata || r.prefix.IsSingleIP())
	})
}

// Resolves decides whether a sandbox may learn that name exists, which holds if the rules allow any port of it.
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
	return Decision{Unknown: true, Reason: "no rule", Allow: q.remedy()}
}

// Names reports whether an address rule covers a on q's port. Such an address may be reached although it is not
// public.
func (p Policy) Names(q Query, a netip.Addr) bool { return p.named(q, a.Unmap(), Classify(a)) }

// usual are the ports that Ports lists for a rule for every port: the web, git, ssh, mail and databases.
var usual = []uint16{22, 25, 80, 443, 465, 587, 993, 1433, 3306, 5432, 6379, 8080, 8443, 9418, 27017}

// maxRange bounds the ports that Ports lists for one range.
const maxRange = 64

// Ports lists ports that the rules cover, for callers that can listen on a limited number only. It lists the
// ports that rules name, and the first maxRange of each range. A rule without ports adds 80 and 443, and a rule for every port
// adds usual.
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
