package policy

import (
	"slices"
	"strings"
)

// reserved are top-level names, and names below them, that lead into this machine or its own network and never to a
// server of the Internet (RFC 6761, 6762, 8375; private ones of vendors; metadata services of clouds).
var reserved = []string{"localhost", "local", "internal", "intranet", "lan", "home", "corp", "private", "localdomain", "home.arpa", "onion", "arpa", "metadata.goog"}

// NotForModels says why a rule that a model wrote must not hold, even if a person consents: its words do not
// show where it leads. Empty: it may be asked about.
func (r Rule) NotForModels() string {
	host := r.name.s
	if !r.zone.IsZero() {
		host = r.zone.s
	}
	switch {
	case r.all:
		return "it is everything"
	case r.prefix.IsValid():
		return "it is an address"
	case r.private:
		return "private addresses"
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

// Within gives r as far as outer allows it, a rule that an operator wrote: r's host, r's ports or, where r names none,
// outer's, and the options of the one that has some. It is not ok where r goes beyond outer, or both have options.
func (r Rule) Within(outer Rule) (_ Rule, ok bool) {
	_, list, err := splitPorts(strings.TrimPrefix(outer.words, "tcp://"))
	if host, own, err2 := splitPorts(strings.TrimPrefix(r.words, "tcp://")); err == nil && err2 == nil && own == "" && list != "" && !r.prefix.IsValid() {
		r.words, r.ports = strings.TrimSuffix(r.words, host)+host+":"+list, outer.ports
	}
	switch {
	case !outer.coversRule(r):
		return Rule{}, false
	case r.hasOptions():
		return r, !outer.hasOptions() && !r.private
	}
	in := outer
	in.words, in.name, in.zone, in.prefix, in.all, in.ports, in.raw = r.words, r.name, r.zone, r.prefix, r.all, r.ports, r.raw
	in.text = in.Words()
	return in, true
}

// Addresses says whether r is about addresses, or everything, and not about names.
func (r Rule) Addresses() bool { return r.all || r.prefix.IsValid() }

func (r Rule) hasOptions() bool { return r.Words() != r.words }

// Canonical gives the words of r with its name in the one spelling that there is of it: for a person to read.
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

// coversRule says whether every host, port and protocol of other is r's too.
func (r Rule) coversRule(other Rule) bool {
	if other.raw && !r.raw {
		return false
	}
	return r.coversHosts(other) && r.coversPorts(other.ports)
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
		return other.name == r.name || other.name.Under(r.zone)
	case !other.zone.IsZero():
		return other.zone == r.zone || other.zone.Under(r.zone)
	}
	return false
}

func (r Rule) coversPorts(list []ports) bool {
	if len(r.ports) == 0 {
		return true
	}
	return len(list) > 0 && !slices.ContainsFunc(list, func(p ports) bool {
		return !slices.ContainsFunc(r.ports, func(own ports) bool { return own.from <= p.from && p.to <= own.to })
	})
}
