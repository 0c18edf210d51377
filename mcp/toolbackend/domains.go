package toolbackend

import (
	"fmt"
	"slices"
	"strings"

	"demesne/mcp"
	"demesne/proxy/policy"
)

// varDomains names the variable with the rules that a model may use without a user's consent.
const varDomains = "DEMESNE_ALLOWED_DOMAINS"

// domains decides about the rules that a model passes in allowed_domains.
type domains struct {
	listed []policy.Rule
	widest string // mode beyond which only the operator allows a rule; empty: a person may be asked
}

// parseDomains parses a list of rules, separated by commas or white space. A rule's ports and options may
// follow separators too: "a.test:80,443 private" is one rule.
func parseDomains(list string) (d domains, err error) {
	var rules []string
	for _, word := range fields(list) {
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
		r, err := policy.ParseRule(words)
		if err != nil {
			return d, fmt.Errorf("%s: %w", varDomains, err)
		}
		d.listed = append(d.listed, r)
	}
	return d, nil
}

// moreMethods reports whether word continues the list of methods at the end of rule.
func moreMethods(rule, word string) bool {
	_, methods, found := strings.Cut(rule, " methods=")
	return found && !strings.Contains(methods, " ") && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// decide implements [mcp.Options.Domain].
func (d domains) decide(mode, words string) (use string, v mcp.Verdict, err error) {
	r, err := policy.ParseRule(words)
	if err != nil {
		return "", mcp.Refused, fmt.Errorf("%w (such as %s)", err, policy.Instead(words))
	}
	for _, l := range d.listed {
		// A rule for addresses, or one that leads to private ones or hides names, must be listed literally.
		if l.Words() == r.Words() {
			return r.Words(), mcp.Listed, nil
		}
		if within, ok := r.Within(l); ok && !r.Addresses() {
			return within.Words(), mcp.Listed, nil
		}
	}
	if why := r.NotForModels(); why != "" {
		return "", mcp.Refused, fmt.Errorf("%q: %s: only the operator can allow it, in %s", words, why, varDomains)
	}
	m, err := policy.ParseMode(mode)
	if err != nil {
		return "", mcp.Refused, err
	}
	if slices.ContainsFunc(m.Rules(), func(own policy.Rule) bool { _, ok := r.Within(own); return ok }) {
		return "", mcp.Listed, nil // the mode allows it
	}
	if d.widest != "" {
		return "", mcp.Refused, fmt.Errorf("%q: the operator allows %q, and the rules in %s", words, d.widest, varDomains)
	}
	return r.Canonical(), mcp.Ask, nil
}
