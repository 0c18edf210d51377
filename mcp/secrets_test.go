package mcp

import (
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	offer := func(o *Options) {
		o.Secrets = []SecretName{{"KEY", "a.test"}, {"PORT", "b.test:8443"}}
	}
	for _, c := range []struct{ said, names, domains, err string }{
		{`{}`, "", "", ""},
		{`{"secrets":["KEY"]}`, "KEY", "a.test:443", ""},
		{`{"secrets":["PORT","KEY","PORT"]}`, "PORT KEY", "b.test:8443 a.test:443", ""},
		{`{"secrets":["OTHER"]}`, "", "", `secrets: "OTHER" is not offered here (KEY, PORT)`},
		{`{"secrets":"KEY"}`, "", "", "secrets"},
		{`{"secrets":[1]}`, "", "", "secrets"},
	} {
		d := &desk{}
		s, _ := serverFor(t, d, offer)
		text, _, isError := callTool(t, clientOf(t, s, nil, "2025-11-25"), "sandbox_create", c.said)
		var names, domains string
		if len(d.seen()) > 0 {
			names, domains = strings.Join(d.seen()[0].Secrets, " "), strings.Join(d.seen()[0].Create.Egress.Allow, " ")
		}
		if isError != (c.err != "") || !strings.Contains(text, c.err) || names != c.names || domains != c.domains {
			t.Errorf("%s: %q, %q, %s", c.said, names, domains, text)
		}
	}
}
