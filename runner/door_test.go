package runner

import "testing"

func TestDoors(t *testing.T) {
	for _, c := range []struct {
		spec             Spec
		cliOwns, mcpOwns bool
		cliSees, mcpSees bool
		doors            string
	}{
		{Spec{}, true, false, true, false, "cli"},
		{Spec{Share: DoorMCP}, true, false, true, true, "cli,mcp"},
		{Spec{Door: DoorMCP}, true, true, true, true, "mcp"},
		{Spec{Door: DoorMCP, Share: DoorMCP}, true, true, true, true, "mcp"},
		{Spec{Door: "other"}, true, false, true, false, "other"},
	} {
		s := &c.spec
		if DoorCLI.Owns(s) != c.cliOwns || DoorMCP.Owns(s) != c.mcpOwns || DoorCLI.Sees(s) != c.cliSees || DoorMCP.Sees(s) != c.mcpSees || s.Doors() != c.doors {
			t.Errorf("%+v: %s", c, s.Doors())
		}
	}
	if !DoorCLI.Known() || !DoorMCP.Known() || Door("other").Known() {
		t.Error("the doors there are")
	}
}
