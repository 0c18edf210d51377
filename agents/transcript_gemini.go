package agents

import (
	"cmp"
	"encoding/json"
)

// geminiLine is a line of `gemini -p --output-format stream-json`.
type geminiLine struct {
	Type    string          `json:"type"`
	Session string          `json:"session_id"`
	Model   string          `json:"model"`
	Role    string          `json:"role"`
	Content string          `json:"content"`
	Tool    string          `json:"tool_name"`
	ID      string          `json:"tool_id"`
	Args    json.RawMessage `json:"parameters"`
	Status  string          `json:"status"`
	Output  string          `json:"output"`
	Message string          `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

// gemini parses a line. The result has no text: the answer is the text after the last tool call. Texts come in
// pieces, which are shown as they come.
func (o *outcome) gemini(line []byte) {
	var l geminiLine
	if !decode(line, &l) {
		return
	}
	switch l.Type {
	case "init":
		o.begin(l.Session, l.Model)
	case "message":
		if l.Role == "assistant" && l.Content != "" {
			o.stated = true
			o.result.WriteString(l.Content)
			o.emit(Event{Kind: eventText, Text: l.Content})
		}
	case "tool_use":
		o.result = tail{}
		o.call("", l.ID, l.Tool, l.Args)
	case "tool_result":
		o.done("", l.ID, l.Status == "error", cmp.Or(l.Error.Message, l.Output))
	case "error":
		o.emit(Event{Kind: eventError, Text: cut(cmp.Or(l.Error.Message, l.Message), faultKept)})
	case "result":
		o.geminiResult(l)
	}
}

func (o *outcome) geminiResult(l geminiLine) {
	if l.Status != "success" {
		fault := cmp.Or(l.Error.Message, l.Status, "error")
		o.fail(0, fault)
		o.end(fault)
		return
	}
	o.end("")
}
