package runner

import (
	"strings"
	"testing"
)

func TestDoors(t *testing.T) {
	for _, c := range []struct {
		spec             Spec
		cliOwns, mcpOwns bool
		cliSees, mcpSees bool
		frontends        string
	}{
		{Spec{}, true, false, true, false, "cli"},
		{Spec{Share: FrontendMCP}, true, false, true, true, "cli,mcp"},
		{Spec{Frontend: FrontendMCP}, true, true, true, true, "mcp"},
		{Spec{Frontend: FrontendMCP, Share: FrontendMCP}, true, true, true, true, "mcp"},
		{Spec{Frontend: "other"}, true, false, true, false, "other"},
	} {
		s := &c.spec
		if FrontendCLI.Owns(s) != c.cliOwns || FrontendMCP.Owns(s) != c.mcpOwns || FrontendCLI.Sees(s) != c.cliSees || FrontendMCP.Sees(s) != c.mcpSees || s.Frontends() != c.frontends {
			t.Errorf("%+v: %s", c, s.Frontends())
		}
	}
	if !FrontendCLI.Known() || !FrontendMCP.Known() || Frontend("other").Known() {
		t.Error("the frontends there are")
	}
}

func TestNamespaces(t *testing.T) {
	a, b := FrontendOf("team-a"), FrontendOf("b")
	if !a.Known() || a.Namespace() != "team-a" || FrontendMCP.Namespace() != "" {
		t.Errorf("%q: %q", a, a.Namespace())
	}
	for _, bad := range []string{"", "-a", "A", "a.b", "a@b", "a/b", "a:b", "a\n", strings.Repeat("a", 64)} {
		if f := FrontendOf(bad); IsNamespace(bad) || f.Known() || f.Full("x") != "x" {
			t.Errorf("%q can be a namespace", bad)
		}
	}
	if s := (&Spec{Frontend: a}); !FrontendCLI.Owns(s) || !a.Owns(s) || b.Sees(s) || FrontendMCP.Sees(s) {
		t.Error("the frontends that see a sandbox of a namespace")
	}
	for _, f := range []Frontend{FrontendCLI, FrontendMCP, a, b} {
		if f.Short(f.Full("web")) != "web" || f.Full("") != "" {
			t.Errorf("%q: %q", f, f.Full("web"))
		}
	}
	if full := a.Full("web"); full != "web@team-a" || b.Short(full) != full || CheckName(full) == nil {
		t.Errorf("%q: a caller can choose it, or another namespace shortens it", full)
	}
}
