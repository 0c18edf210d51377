package agents

import (
	"cmp"
	"encoding/json"
)

// opencodeLine is a line of `opencode run --format json`.
type opencodeLine struct {
	Type    string `json:"type"`
	Session string `json:"sessionID"`
	Part    struct {
		Text   string  `json:"text"`
		Tool   string  `json:"tool"`
		Call   string  `json:"callID"`
		Reason string  `json:"reason"`
		Cost   float64 `json:"cost"`
		State  struct {
			Status   string          `json:"status"`
			Input    json.RawMessage `json:"input"`
			Output   string          `json:"output"`
			Error    string          `json:"error"`
			Metadata struct {
				Exit int `json:"exit"`
			} `json:"metadata"`
		} `json:"state"`
	} `json:"part"`
	Error struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  int    `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
}

// opencode parses a line. The program reports a tool call once, when it is complete, and states no result: its last
// step ends for another reason than tool calls. It waits for the end of a rate limit itself, without a line.
func (o *outcome) opencode(line []byte) {
	var l opencodeLine
	if !decode(line, &l) {
		return
	}
	if l.Session != "" && o.t.session == "" {
		o.begin(l.Session, "")
	}
	switch l.Type {
	case "step_start":
		o.result = tail{}
	case "text":
		o.stated = true
		o.result.paragraph(l.Part.Text)
		o.say("", l.Part.Text)
	case "tool_use":
		s := l.Part.State
		o.call("", l.Part.Call, l.Part.Tool, s.Input)
		o.done("", l.Part.Call, s.Status == "error" || s.Metadata.Exit != 0, cmp.Or(s.Output, s.Error))
	case "step_finish":
		o.opencodeStep(l.Part.Reason, l.Part.Cost)
	case "error":
		fault := cmp.Or(l.Error.Data.Message, l.Error.Name, "error")
		o.fail(l.Error.Data.Status, fault)
		o.end(fault)
	}
}

func (o *outcome) opencodeStep(reason string, cost float64) {
	o.cost += cost
	if reason == "tool-calls" {
		o.emit(Event{Kind: eventStep, Cost: o.cost})
		return
	}
	o.end("")
}
