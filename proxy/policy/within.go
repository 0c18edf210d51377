package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// reserved are domains that lead to this machine or its network and never to a server of the Internet. They come
// from RFC 6761, 6762 and 8375, from vendors' private domains, and from metadata services of clouds.
var reserved = []string{"localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "localdomain", "home.arpa", "onion", "arpa", "metadata.goog"}

// NotForModels returns why a rule that a model wrote must be rejected, even if a person consents: its words do
// not show where it leads. It returns "" if a person may be asked.
func (r Rule) NotForModels() string {
	host := r.name.s
	if !r.zone.IsZero() {
		host = r.zone.s
	}
	switch {
	case r.all:
		return "it covers everything"
	case r.prefix.IsValid():
		return "it is an address"
	case r.private:
		return "private addresses"
	case r.ech:
		return "encrypted names"
	case host == "":
		return "it names nothing"
	case !strings.Contains(host, "."):
		return "it is a name of this network"
	}
	for _, name := range reserved {
		if host == name || strings.HasSuffix(host, "."+name) {
			return "it is a name of this machine or its network"
		}
	}
	return ""
}

// Within restricts r to outer, a rule that an operator wrote. The result has r's host, r's ports or else outer's,
// and the options of the rule that has some. ok is false if r exceeds outer, both have options, or r is private or
// allows encrypted ClientHellos.
func (r Rule) Within(outer Rule) (_ Rule, ok bool) {
	_, list, err := splitPorts(strings.TrimPrefix(outer.words, "tcp://"))
	if host, own, err2 := splitPorts(strings.TrimPrefix(r.words, "tcp://")); err == nil && err2 == nil && own == "" && list != "" && !r.prefix.IsValid() {
		r.words, r.ports, r.every = strings.TrimSuffix(r.words, host)+host+":"+list, outer.ports, outer.every
	}
	switch {
	case !outer.coversRule(r):
		return Rule{}, false
	case r.hasOptions():
		return r, !outer.hasOptions() && !r.private && !r.ech
	}
	in := outer
	in.words, in.name, in.zone, in.prefix, in.all, in.ports, in.every, in.raw = r.words, r.name, r.zone, r.prefix, r.all, r.ports, r.every, r.raw
	in.text = in.Words()
	return in, true
}

// Addresses reports whether r covers addresses, or everything, instead of names.
func (r Rule) Addresses() bool { return r.all || r.prefix.IsValid() }

// BeyondOpen returns why r leads further than the mode open, which is every public address that is not this machine's. It
// returns "" if it does not. own are this machine's addresses.
func (r Rule) BeyondOpen(own []netip.Addr) string {
	switch {
	case r.all:
		return "it covers everything"
	case r.private:
		return "private addresses"
	case r.ech:
		return "encrypted names"
	case !r.prefix.IsValid():
		return ""
	case Classify(r.prefix.Addr()) != classPublic || slices.ContainsFunc(registry, func(b block) bool {
		return b.class != classPublic && b.prefix.Bits() > r.prefix.Bits() && r.prefix.Overlaps(b.prefix)
	}):
		return "addresses that are not public"
	case slices.ContainsFunc(own, r.prefix.Contains):
		return "an address of this machine"
	}
	return ""
}

func (r Rule) hasOptions() bool { return r.Words() != r.words }

// Canonical returns the words of r with its name in canonical spelling, to show to people.
func (r Rule) Canonical() string {
	host := r.name.s
	if !r.zone.IsZero() {
		host = "*." + r.zone.s
	}
	_, list, err := splitPorts(strings.TrimPrefix(r.words, "tcp://"))
	if host == "" || err != nil {
		return r.Words()
	}
	if list != "" {
		host += ":" + list
	}
	if r.raw {
		host = "tcp://" + host
	}
	r.words = host
	return r.Words()
}

// coversRule reports whether r covers every host, port and protocol of other.
func (r Rule) coversRule(other Rule) bool {
	if other.raw && !r.raw {
		return false
	}
	return r.coversHosts(other) && r.coversPorts(other)
}

func (r Rule) coversHosts(other Rule) bool {
	switch {
	case r.all:
		return true
	case other.all:
		return false
	case other.prefix.IsValid():
		return r.prefix.IsValid() && r.prefix.Bits() <= other.prefix.Bits() && r.prefix.Contains(other.prefix.Addr())
	case !other.name.IsZero():
		return other.name == r.name || other.name.under(r.zone)
	case !other.zone.IsZero():
		return other.zone == r.zone || other.zone.under(r.zone)
	}
	return false
}

func (r Rule) coversPorts(other Rule) bool {
	own := r.allowed()
	return !slices.ContainsFunc(other.allowed(), func(p ports) bool {
		return !slices.ContainsFunc(own, func(o ports) bool { return o.from <= p.from && p.to <= o.to })
	})
}

// allowed returns the ports that r covers as an allow rule.
func (r Rule) allowed() (list []ports) {
	switch {
	case len(r.ports) > 0:
		return r.ports
	case r.every:
		return []ports{{1, 65535}}
	}
	for _, port := range web {
		list = append(list, ports{port, port})
	}
	return list
}
