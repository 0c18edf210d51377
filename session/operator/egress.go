package operator

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"demesne/proxy/policy"
	"demesne/runner"
	"demesne/session"
)

// Verdict is the decision about a rule that a caller asks for.
type Verdict int

// The verdicts.
const (
	Refused Verdict = iota // refused, even if a person would allow it
	Ask                    // a person at the client decides
	Allowed                // by the operator or the egress mode
)

// Modes returns the modes that a caller may name, the narrowest first. A model may name none that allows every destination.
func (p *Policy) Modes() []string {
	names := policy.ModeNames()
	if n := slices.Index(names, p.Egress); n >= 0 {
		names = names[:n+1]
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		m, err := policy.ParseMode(name)
		return err != nil || p.Model && m.Everything()
	})
}

// Mode checks that a caller may name a mode.
func (p *Policy) Mode(name string) error {
	switch {
	case slices.Contains(p.Modes(), name):
		return nil
	case !slices.Contains(policy.ModeNames(), name):
		return refused("network mode %q: not one of %s", name, strings.Join(policy.ModeNames(), ", "))
	}
	return refused("network mode %q: the operator allows %q", name, p.Egress)
}

// Rule decides about a rule beside a mode. use is the rule to add: the part that the operator lists, or what was asked for.
// It is empty if the mode contains the rule already.
func (p *Policy) Rule(mode, words string) (use string, v Verdict, err error) {
	r, err := policy.ParseRule(words)
	if err != nil {
		return "", Refused, refused("%w (such as %s)", err, policy.Instead(words))
	}
	for _, l := range p.listed {
		// A rule for addresses, or one that leads to private ones or hides names, must be listed literally.
		if l.Words() == r.Words() {
			return r.Words(), Allowed, nil
		}
		if within, ok := r.Within(l); ok && !r.Addresses() {
			return within.Words(), Allowed, nil
		}
	}
	if p.Model {
		return p.forModel(mode, words, r)
	}
	if why := p.beyond(r); why != "" {
		return "", Refused, refused("rule %q: %s, and the operator allows %q", words, why, p.Egress)
	}
	return words, Allowed, nil
}

// forModel decides about a rule of a model that the operator does not list.
func (p *Policy) forModel(mode, words string, r policy.Rule) (use string, v Verdict, err error) {
	if why := r.NotForModels(); why != "" {
		return "", Refused, refused("%q: %s: only the operator can allow it, in %s", words, why, VarDomains)
	}
	m, err := policy.ParseMode(mode)
	if err != nil {
		return "", Refused, err
	}
	switch {
	case covers(m, r): // the mode allows it
		return "", Allowed, nil
	case p.Egress == open:
		return r.Canonical(), Ask, nil
	case p.beyond(r) == "": // a part of the widest mode
		return r.Canonical(), Allowed, nil
	}
	return "", Refused, refused("%q: the operator allows %q, and the rules in %s", words, p.Egress, VarDomains)
}

// beyond returns why a rule leads further than the operator's widest mode, or "".
func (p *Policy) beyond(r policy.Rule) string {
	if p.Egress == open {
		return r.BeyondOpen(ownAddresses())
	}
	m, err := policy.ParseMode(p.Egress)
	if err != nil || r.Addresses() || !covers(m, r) {
		return "not part of it"
	}
	return ""
}

func covers(m policy.Mode, r policy.Rule) bool {
	return slices.ContainsFunc(m.Rules(), func(own policy.Rule) bool { _, ok := r.Within(own); return ok })
}

// ownAddresses returns the addresses of this machine. A sandbox reaches none of them by a rule of its caller.
func ownAddresses() (own []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them a rule still must name a public address
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				own = append(own, ip.Unmap())
			}
		}
	}
	return own
}

// Widest returns the mode of a caller that asks for all that the operator allows.
func (p *Policy) Widest() string { return p.Egress }

// Network returns what a sandbox may reach whose caller asks for e, with the rules that the operator's contain. It refuses
// what leads further. It also refuses rules that need a person's word.
func (p *Policy) Network(e session.Egress) (session.Egress, error) {
	e.Mode = cmp.Or(e.Mode, runner.NoEgress)
	if err := p.Mode(e.Mode); err != nil {
		return e, err
	}
	if p.Egress == runner.NoEgress {
		if len(e.Allow) > 0 {
			return e, refused("rule %q: the operator allows no network", e.Allow[0])
		}
		e.Ask, e.Gateway = 0, false
		return e, nil
	}
	allow, err := p.Rules(e.Mode, e.Allow)
	if err != nil {
		return e, err
	}
	e.Allow = allow
	if e.Ask > 0 {
		e.Ask = runner.AskTime
	}
	return e, nil
}

// Rules returns the rules that a caller may add to a mode, or why it may not.
func (p *Policy) Rules(mode string, all []string) (allow []string, err error) {
	for _, words := range all {
		use, v, err := p.Rule(mode, words)
		switch {
		case err != nil:
			return nil, err
		case v != Allowed:
			return nil, refused("rule %q: a person must allow it", words)
		case use != "":
			allow = append(allow, use)
		}
	}
	return allow, nil
}

// MayAnswer checks that a caller may answer a sandbox's question, and thereby allow any public name. own means that the caller
// has the operator's token. Below the mode open only the operator may.
func (p *Policy) MayAnswer(own bool) error {
	switch {
	case p.Egress == runner.NoEgress:
		return refused("the operator allows no network")
	case p.Egress != open && !own:
		return refused("the operator allows %q, and decides about the rest", p.Egress)
	}
	return nil
}

// ParseRules parses a list of rules, separated by commas or white space. A rule's ports and options may follow separators
// too: "a.test:80,443 private" is one rule.
func ParseRules(list string) (rules []string, err error) {
	for _, word := range Fields(list) {
		last := len(rules) - 1
		switch {
		case last >= 0 && (strings.Trim(word, "0123456789-") == "" || moreMethods(rules[last], word)):
			rules[last] += "," + word
		case last >= 0 && (word == "private" || word == "ech" || strings.Contains(word, "=")):
			rules[last] += " " + word
		default:
			rules = append(rules, word)
		}
	}
	for _, words := range rules {
		if _, err := policy.ParseRule(words); err != nil {
			return nil, fmt.Errorf("%s: %w", VarDomains, err)
		}
	}
	return rules, nil
}

// moreMethods reports whether word continues the list of methods at the end of rule.
func moreMethods(rule, word string) bool {
	_, methods, found := strings.Cut(rule, " methods=")
	return found && !strings.Contains(methods, " ") && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// Fields splits a list at commas and white space.
func Fields(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}
