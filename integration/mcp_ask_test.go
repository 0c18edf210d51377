package integration

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestMCPAsk checks that a name that no rule allows is put to the user at the client while the command waits. The
// answer decides, and is asked for once. If the client cannot ask, the name is denied.
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
			m := n.mcpUnstarted()
			m.cmd.Env = append(m.cmd.Env, "DEMESNE_ALLOWED_DOMAINS=good.test")
			m.begin()
			m.elicit = c.action
			m.ask("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": c.capabilities, "clientInfo": map[string]any{"name": "t", "version": "1"}})
			m.tell("notifications/initialized", nil)
			r := m.must("sandbox_script", args{"ask": true, "egress": "none",
				"command": "curl -sS http://good.test/; curl -sS --noproxy '*' -m 20 http://good.test/"})
			if got := strings.Count(r.field("stdout"), "hello from good.test"); got != c.want || m.questions(`"good.test:80"`) != c.asked || (c.want == 0) != (r.Fields["denied"] != nil) {
				n.Errorf("%+v: %d times hello, asked %d times, %v", c, got, m.questions(""), r.Fields)
			}
			r = m.must("sandbox_script", args{"egress": "none", "allowed_domains": []string{"good.test"}, "command": "curl -sS http://good.test/; curl -sS http://other.test/"})
			if strings.Count(r.field("stdout"), "hello from good.test") != 1 || !strings.Contains(r.field("denied"), "other.test") {
				n.Errorf("allowed_domains: %v", r.Fields)
			}
			m.close()
		}
	})
}

// TestMCPAskInRounds checks protocol version 2026-07-28, which returns the question as the result of the call.
// The client calls again with the user's answer; the command waits meanwhile.
func TestMCPAskInRounds(t *testing.T) {
	onInternet(t, func(n *internet) {
		for _, c := range []struct {
			action string
			want   int // greetings of good.test
		}{{"decline", 0}, {"accept", 2}} {
			m := n.mcpRaw()
			params := args{"name": "sandbox_script", "arguments": args{"ask": true, "egress": "none",
				"command": "echo once >> /out/begun; curl -sS http://good.test/; curl -sS --noproxy '*' -m 20 http://good.test/; cat /out/begun"},
				"_meta": args{"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": args{"elicitation": args{}}}}
			var r struct {
				ResultType, RequestState string
				InputRequests            map[string]struct{ Params struct{ Message string } }
				StructuredContent        struct{ Stdout string }
			}
			ask := func() {
				a := m.ask("tools/call", params)
				if err := json.Unmarshal(a.Result, &r); err != nil || a.IsError {
					n.Fatalf("%+v: %v", a, err)
				}
			}
			ask()
			if r.ResultType != "input_required" || len(r.InputRequests) != 1 {
				n.Errorf("at first: %+v", r)
			}
			answers := args{}
			for id, q := range r.InputRequests {
				if !strings.Contains(q.Params.Message, `"good.test:80"`) {
					n.Errorf("asked: %s", q.Params.Message)
				}
				answers[id] = args{"action": c.action}
			}
			params["requestState"], params["inputResponses"] = r.RequestState, answers
			ask()
			out := r.StructuredContent.Stdout
			if got := strings.Count(out, "hello from good.test"); r.ResultType != "complete" || got != c.want || strings.Count(out, "once") != 1 {
				n.Errorf("%s: %+v", c.action, r)
			}
			m.close()
		}
	})
}

// questions counts the questions to the user that contain about.
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
