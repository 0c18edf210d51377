package mcp

import (
	"fmt"
	"strings"

	"demesne/session"
	"demesne/session/operator"
)

// maxDomains is the maximum number of rules in one call.
const maxDomains = 64

// domainHint is the hint of a name that no operator listed.
const domainHint = "ask the user to add it to DEMESNE_ALLOWED_DOMAINS, or download it on the host and pass it in files"

// domains reads allowed_domains, and adds the rules that a tool needs. It asks the person at the client about rules that no
// operator listed, and shows the files that the sandbox could send there. The call fails if the client cannot ask or the
// person does not accept.
func (c *call) domains(r *session.Request, needed ...string) error {
	words, err := c.args.texts("allowed_domains")
	if err != nil {
		return err
	}
	words = append(needed, words...)
	if len(words) > maxDomains {
		return fmt.Errorf("allowed_domains: %d rules are more than %d", len(words), maxDomains)
	}
	var ask []string
	for _, w := range words {
		use, verdict, err := c.opts.Policy.Rule(r.Create.Egress.Mode, w)
		if err != nil {
			return fmt.Errorf("allowed_domains: %w", err)
		}
		if verdict == operator.Ask {
			ask = append(ask, use)
		}
		if use != "" {
			r.Create.Egress.Allow = append(r.Create.Egress.Allow, use)
		}
	}
	if len(ask) == 0 {
		return nil
	}
	return c.consent(ask, inputPaths(r.Create.Spec))
}

// consent asks the person at the client about all rules in one question.
func (c *call) consent(rules, inputs []string) error {
	what := strings.Join(quotedAll(rules), ", ")
	if !c.canAsk() {
		return c.hinted(fmt.Errorf("allowed_domains: %s: not in DEMESNE_ALLOWED_DOMAINS, and this client cannot ask a person (elicitation)", what), domainHint)
	}
	text, ok := framed("A model wants to start a command in a sandbox with network access to "+what+", which the operator did not list. Accept to allow it.", inputs)
	if !ok {
		return fmt.Errorf("allowed_domains: the question about %d rules and %d inputs is too long to show", len(rules), len(inputs))
	}
	if !c.put(text) {
		return fmt.Errorf("allowed_domains: %s: the person at the client did not allow it", what)
	}
	return nil
}
