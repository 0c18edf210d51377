package integration

import (
	"encoding/json"
	"strings"
	"testing"
)

// A name that nothing allows is put to the person at the client while the command waits; what
// that says is what happens, and it is asked once. Nobody is asked whom the client cannot ask.
func TestMCPAsk(t *testing.T) {
	onInternet(t, func(n *internet) {
		can := map[string]any{"elicitation": map[string]any{}}
		for _, c := range []struct {
			capabilities map[string]any
			action       string
			want         int // greetings of good.test
			asked        int
		}{
			{can, "decline", 0, 1}, {map[string]any{}, "accept", 0, 0}, {can, "accept", 2, 1},
		} {
			m := n.mcpRaw()
			m.elicit = c.action
			m.ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": c.capabilities, "clientInfo": map[string]any{"name": "t", "version": "1"}})
			m.tell("notifications/initialized", nil)
			r := m.must("sandbox_script", args{"ask": true, "egress": "none",
				"command": "curl -sS http://good.test/; curl -sS --noproxy '*' -m 20 http://good.test/"})
			if got := strings.Count(r.field("stdout"), "hello from good.test"); got != c.want || m.questions(`"good.test:80"`) != c.asked || (c.want == 0) != (r.Fields["denied"] != nil) {
				n.Errorf("%+v: %d times hello, asked %d times, %v", c, got, m.questions(""), r.Fields)
			}
			m.close()
		}
	})
}

// questions counts those to the person that have about in them.
func (c *mcpClient) questions(about string) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.notes {
		var p struct{ Message string }
		if n.Method == "elicitation/create" && json.Unmarshal(n.Params, &p) == nil && strings.Contains(p.Message, about) {
			count++
		}
	}
	return count
}
