package client

import (
	"testing"
	"time"

	"demesne/runner"
)

// TestToSibling checks that a connection to a sibling has everything that starting a stopped sandbox there takes: the
// bounds of the sum of limits, and the id map of an /out that belongs to real root.
func TestToSibling(t *testing.T) {
	c := &Client{
		dir: &runDir{path: "/run", key: "a-1"}, root: true, init: "init", proxy: "proxy", frontend: runner.FrontendMCP,
		linger: new(time.Duration), totals: &runner.Limits{PIDs: 1}, outMap: &outMap{},
	}
	dir := *c.dir
	dir.key = "a-2"
	s := c.toSibling(&dir)
	if s.dir.key != "a-2" || !s.root || s.init != c.init || s.proxy != c.proxy || s.frontend != c.frontend || s.linger != c.linger {
		t.Errorf("%+v", s)
	}
	if s.totals != c.totals {
		t.Error("the sum of limits is not bounded")
	}
	if s.outMap == nil {
		t.Error("an /out of real root has no id map")
	}
}
