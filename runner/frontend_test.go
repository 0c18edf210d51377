package runner

import "testing"

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
