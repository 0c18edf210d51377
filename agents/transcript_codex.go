package agents

import (
	"cmp"
	"encoding/json"
	"strings"
)

// codexLine is a line of `codex exec --json`.
type codexLine struct {
	Type    string    `json:"type"`
	Thread  string    `json:"thread_id"`
	Item    codexItem `json:"item"`
	Message string    `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
}

type codexItem struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Message  string          `json:"message"`
	Status   string          `json:"status"`
	Command  string          `json:"command"`
	Output   string          `json:"aggregated_output"`
	ExitCode *int            `json:"exit_code"`
	Server   string          `json:"server"`
	Tool     string          `json:"tool"`
	Args     json.RawMessage `json:"arguments"`
	Query    string          `json:"query"`
	Changes  []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
}

// codex parses a line. Errors while the program still retries are lines of the type "error" too; the turn decides.
func (o *outcome) codex(line []byte) {
	var l codexLine
	if !decode(line, &l) {
		return
	}
	switch l.Type {
	case "thread.started":
		o.begin(l.Thread, "")
	case "turn.completed":
		o.end("")
	case "turn.failed":
		fault := cmp.Or(l.Error.Message, "turn failed")
		o.fail(0, fault)
		o.end(fault)
	case "error":
		o.codexError(l.Message)
	case "item.started":
		o.codexCall(l.Item)
	case "item.completed":
		o.codexItem(l.Item)
	}
}

// codexError records an error that may be the program's last line.
func (o *outcome) codexError(message string) {
	if strings.HasPrefix(message, "Reconnecting...") {
		o.emit(Event{Kind: eventError, Text: cut(message, summaryKept)})
		return
	}
	o.fault = cut(message, faultKept) // turn.failed repeats it
}

func (o *outcome) codexItem(i codexItem) {
	switch i.Type {
	case "agent_message":
		o.answer(i.Text)
		o.say("", i.Text)
	case "error":
		o.emit(Event{Kind: eventError, Text: cut(i.Message, summaryKept)})
	case "command_execution", "mcp_tool_call", "collab_tool_call":
		failed := i.Status == "failed" || i.Status == "declined" || i.ExitCode != nil && *i.ExitCode != 0
		o.done("", i.ID, failed, i.Output)
	case "file_change", "web_search":
		o.codexChange(i)
	}
}

// codexCall shows a tool call as it begins.
func (o *outcome) codexCall(i codexItem) {
	switch i.Type {
	case "command_execution":
		o.emit(Event{Kind: eventCall, ID: i.ID, Tool: "command", Text: oneLine(unwrapShell(i.Command), summaryKept)})
	case "mcp_tool_call":
		o.call("", i.ID, i.Server+"."+i.Tool, i.Args)
	case "collab_tool_call":
		o.call("", i.ID, i.Tool, i.Args)
	}
}

// codexChange shows a tool call that the program reports only when it is complete.
func (o *outcome) codexChange(i codexItem) {
	text := i.Query
	for _, c := range i.Changes {
		text += c.Kind + " " + c.Path + " "
	}
	o.emit(Event{Kind: eventCall, ID: i.ID, Tool: i.Type, Text: oneLine(text, summaryKept)})
	o.done("", i.ID, i.Status == "failed", "")
}

// unwrapShell removes the shell in which the program executes each command.
func unwrapShell(command string) string {
	for _, shell := range []string{"/bin/bash -lc '", "bash -lc '", "/bin/sh -lc '", "/bin/sh -c '"} {
		if inner, ok := strings.CutPrefix(command, shell); ok && strings.HasSuffix(inner, "'") {
			return strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
		}
	}
	return command
}
