package agents

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
)

// piLine is a line of `pi -p --mode json`.
type piLine struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Call    string          `json:"toolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"args"`
	Failed  bool            `json:"isError"`
	Message struct {
		Role    string   `json:"role"`
		Content []piPart `json:"content"`
		Stop    string   `json:"stopReason"`
		Error   string   `json:"errorMessage"`
	} `json:"message"`
	Result struct {
		Content []piPart `json:"content"`
	} `json:"result"`
}

type piPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// pi parses a line. The program states no result: the answer is the last message, if that is not an error. It exits with
// 0 after an error too, so the run has then not ended.
func (o *outcome) pi(line []byte) {
	var l piLine
	if !decode(line, &l) {
		return
	}
	switch l.Type {
	case "session":
		o.begin(l.ID, "")
	case "message_end":
		if l.Message.Role == "assistant" {
			o.piMessage(l)
		}
	case "tool_execution_start":
		o.call("", l.Call, l.Tool, l.Args)
	case "tool_execution_end":
		o.done("", l.Call, l.Failed, piText(l.Result.Content))
	case "agent_end":
		if o.fault == "" {
			o.end("")
		}
	}
}

func (o *outcome) piMessage(l piLine) {
	m := l.Message
	if m.Stop == "error" || m.Stop == "aborted" {
		fault := cmp.Or(m.Error, m.Stop)
		word, _, _ := strings.Cut(fault, " ")
		status, _ := strconv.Atoi(word) // the status of a response is the first word
		o.fail(status, fault)
		o.emit(Event{Kind: eventError, Text: cut(fault, summaryKept)})
		return
	}
	o.fault = ""
	text := piText(m.Content)
	o.answer(text)
	o.say("", text)
}

func piText(parts []piPart) string {
	var b strings.Builder
	for _, p := range parts {
		if p.Type == "text" {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
