package agents

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"
)

// claudeLine is a line of `claude -p --output-format stream-json --verbose`.
type claudeLine struct {
	Type      string        `json:"type"`
	Subtype   string        `json:"subtype"`
	Session   string        `json:"session_id"`
	Model     string        `json:"model"`
	Message   claudeMessage `json:"message"`
	Parent    string        `json:"parent_tool_use_id"` // of what a subagent does
	Subagent  string        `json:"subagent_type"`
	RequestID string        `json:"request_id"`

	Error     any     `json:"error"` // a word
	IsError   bool    `json:"is_error"`
	APIStatus int     `json:"api_error_status"`
	Result    string  `json:"result"`
	Cost      float64 `json:"total_cost_usd"`

	Limit struct {
		Status string `json:"status"`
		Resets int64  `json:"resetsAt"`
	} `json:"rate_limit_info"`
}

type claudeMessage struct {
	Content claudeContent `json:"content"`
}

// claudeContent is a list of blocks, or a text.
type claudeContent []claudeBlock

type claudeBlock struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Call    string          `json:"tool_use_id"`
	Content claudeContent   `json:"content"`
	IsError bool            `json:"is_error"`
}

// UnmarshalJSON reads either form.
func (c *claudeContent) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var text string
		err := json.Unmarshal(b, &text)
		*c = claudeContent{{Type: "text", Text: text}}
		return err
	}
	return json.Unmarshal(b, (*[]claudeBlock)(c))
}

func (c claudeContent) text() string {
	var texts []string
	for _, b := range c {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// claude parses a line. The program states its own errors as messages of the model "<synthetic>", and once more in
// the result, whose subtype may say "success".
func (o *outcome) claude(line []byte) {
	var l claudeLine
	if !decode(line, &l) {
		return
	}
	switch l.Type {
	case "system":
		o.claudeSystem(l)
	case "assistant":
		o.claudeAssistant(l)
	case "user":
		for _, b := range l.Message.Content {
			if b.Type == "tool_result" {
				o.done(l.agent(), b.Call, b.IsError, b.Content.text())
			}
		}
	case "rate_limit_event":
		if l.Limit.Status == "rejected" {
			o.limit(plausible(time.Unix(l.Limit.Resets, 0), o.t.now()))
		}
	case "result":
		o.claudeResult(l)
	}
}

func (o *outcome) claudeSystem(l claudeLine) {
	switch l.Subtype {
	case "init":
		o.begin(l.Session, l.Model)
	case "api_retry":
		word, _ := l.Error.(string)
		o.emit(Event{Kind: eventError, Text: "request failed, retrying: " + brief(word)})
	}
}

func (o *outcome) claudeAssistant(l claudeLine) {
	if l.Error != nil {
		return // the result repeats it
	}
	if l.Parent != "" {
		o.t.all.add(attribution{RequestID: l.RequestID, Agent: l.Subagent})
	}
	for _, b := range l.Message.Content {
		switch b.Type {
		case "text":
			o.say(l.agent(), b.Text)
		case "tool_use":
			o.call(l.agent(), b.ID, b.Name, b.Input)
		}
	}
}

func (o *outcome) claudeResult(l claudeLine) {
	o.cost = l.Cost
	if l.IsError || l.Subtype != "success" {
		fault := cmp.Or(l.Result, l.Subtype, "error")
		o.fail(l.APIStatus, fault)
		o.end(fault)
		return
	}
	if l.Result != "" {
		o.answer(l.Result)
	}
	o.end("")
}

// agent returns the kind of subagent that a line is of.
func (l *claudeLine) agent() string {
	if l.Parent == "" {
		return ""
	}
	return cmp.Or(l.Subagent, "subagent")
}
