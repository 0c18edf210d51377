package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// copilotLine is a line of `copilot -p --output-format json`.
type copilotLine struct {
	Type     string `json:"type"`
	Session  string `json:"sessionId"`
	ExitCode int    `json:"exitCode"`
	Data     struct {
		Message   string          `json:"message"` // of an error
		Status    int             `json:"statusCode"`
		Content   string          `json:"content"`
		Call      string          `json:"toolCallId"`
		Tool      string          `json:"toolName"`
		Args      json.RawMessage `json:"arguments"`
		Success   bool            `json:"success"`
		Execution struct {
			ExitCode int `json:"exitCode"`
		} `json:"shellExecution"`
		Result struct {
			Content string `json:"content"`
		} `json:"result"`
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"data"`
}

// copilot parses a line. The answer is the last message. The last line has the id of the session and the exit code.
func (o *outcome) copilot(line []byte) {
	var l copilotLine
	if !decode(line, &l) {
		return
	}
	d := l.Data
	switch l.Type {
	case "assistant.message":
		o.answer(d.Content)
		o.say("", d.Content)
	case "tool.execution_start":
		o.call("", d.Call, d.Tool, d.Args)
	case "tool.execution_complete":
		o.done("", d.Call, !d.Success || d.Execution.ExitCode != 0, cmp.Or(d.Result.Content, d.Error.Message))
	case "session.error":
		fault := cmp.Or(d.Message, "error")
		o.fail(d.Status, fault)
		o.emit(Event{Kind: eventError, Text: cut(fault, summaryKept)})
	case "result":
		o.begin(l.Session, "")
		if l.ExitCode == 0 {
			o.end("")
			return
		}
		if o.fault == "" {
			o.fail(0, fmt.Sprintf("exit code %d", l.ExitCode))
		}
		o.end(o.fault)
	}
}
