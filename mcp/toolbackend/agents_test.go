package toolbackend

import (
	"testing"

	"demesne/agents"
	"demesne/session"
)

// TestMayRun checks who may run an agent with the operator's credentials, and with which network.
func TestMayRun(t *testing.T) {
	for _, c := range []struct {
		namespace, allowed, egress string
		research, want             bool
	}{
		{"", "", "", false, true}, {"", "", "", true, true}, {"", "", "open", true, true}, {"", "", "package-managers", true, false}, {"", "", "none", false, true},
		{"team", "", "", false, false}, {"team", "false", "", false, false}, {"team", "maybe", "", false, false}, {"team", "true", "", false, true},
		{"team", "true", "none", true, false}, {"team", "true", "open", true, true},
	} {
		env := map[string]string{varAgents: c.allowed, varEgress: c.egress}
		o := Options{Namespace: c.namespace, Session: session.Options{Getenv: func(name string) string { return env[name] }}}
		if err := o.mayRun(agents.Request{Research: c.research}); (err == nil) != c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
