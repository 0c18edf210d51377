package agents

import (
	"strings"
	"testing"
)

// TestTranscriptChat reads lines as copilot and pi write them. A program that reports an error has not ended well, whatever
// its exit code.
func TestTranscriptChat(t *testing.T) {
	for _, c := range []struct {
		name, format, out     string
		final, fault, session string
		ended, limited        bool
	}{
		{"copilot", "copilot", `{"type":"assistant.message","data":{"messageId":"a","content":"I will look.","toolRequests":[{}]}}
{"type":"tool.execution_complete","data":{"toolCallId":"c","success":true,"shellExecution":{"exitCode":0},"result":{"content":"hi"}}}
{"type":"assistant.message","data":{"messageId":"b","content":"all done"}}
{"type":"result","sessionId":"d400f08a","exitCode":0}`, "all done", "", "d400f08a", true, false},
		{"copilot, limit", "copilot", `{"type":"session.error","data":{"message":"Too many requests","statusCode":429}}
{"type":"result","sessionId":"d400f08a","exitCode":1}`, "", "Too many requests", "d400f08a", true, true},
		{"copilot, cut short", "copilot", `{"type":"assistant.message","data":{"content":"half"}}`, "half", "", "", false, false},
		{"pi", "pi", `{"type":"session","version":3,"id":"01a2"}
{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"do it"}]}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"all done"}],"stopReason":"stop","responseId":"r"}}
{"type":"agent_end","messages":[]}`, "all done", "", "01a2", true, false},
		{"pi, an error", "pi", `{"type":"session","id":"01a2"}
{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"Connection error."}}
{"type":"agent_end","messages":[]}`, "", "Connection error.", "01a2", false, false},
		{"pi, a limit that it waited for", "pi", `{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"429 slow down"}}
{"type":"agent_end"}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"fine"}],"stopReason":"stop"}}
{"type":"agent_end"}`, "fine", "", "", true, false},
		{"pi, a limit", "pi", `{"type":"message_end","message":{"role":"assistant","stopReason":"error","errorMessage":"429 slow down"}}
{"type":"agent_end"}`, "", "429 slow down", "", false, true},
	} {
		tr, _ := newTranscript(c.format)
		tr.Write([]byte(c.out))
		tr.Close()
		tr.Exited(0)
		_, limited := tr.Limited()
		if tr.Final() != c.final || tr.Fault() != c.fault || tr.Session() != c.session || tr.Ended() != c.ended || limited != c.limited {
			t.Errorf("%s: final %q, fault %q, session %q, ended %t, limited %t", c.name, tr.Final(), strings.TrimSpace(tr.Fault()), tr.Session(), tr.Ended(), limited)
		}
	}
}
