package mcp

import (
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// statusTail is the maximum size of stdout_tail in bytes.
const statusTail = 16 << 10

func (s *Server) status() tool {
	return tool{
		name:        "sandbox_status",
		description: "Get the status of a background job without waiting; with include_stdout_tail also the end of its stdout.",
		in: arguments(jobField,
			field("include_stdout_tail", "boolean", "Include the last 16 KiB of stdout.").with("default", false)),
		out: results(jobField, statusField,
			field("elapsed_seconds", "number", "from start to end, or to now").must(),
			field("stdout_tail", "string", ""), exitField, messageField,
			field("output_path", "string", "/out, on the host, after its end"), manifestField,
			restartField, missingField, replacedField,
			listOf("denied", "connections that were refused"), property{name: "receipt", schema: receiptSchema},
			costField, totalField),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).tellStatus,
	}
}

func (c *call) tellStatus() (*sdk.CallToolResult, error) {
	j, err := c.job(c.engine.Status)
	if err != nil {
		return nil, err
	}
	t := tell(j)
	seconds := elapsed(j, time.Now())
	t.Elapsed = &seconds
	var text strings.Builder
	fmt.Fprintf(&text, "job_id: %s\nstatus: %s\nelapsed_seconds: %.1f", t.JobID, t.Status, seconds)
	if t.Message != "" {
		fmt.Fprintf(&text, "\nmessage: %s", t.Message)
	}
	if c.args.flag("include_stdout_tail") {
		tail := ""
		if j.Outcome != nil {
			tail = lastLines(j.Outcome.Stdout.Text, statusTail)
		}
		t.StdoutTail = &tail
		fmt.Fprintf(&text, "\n---stdout_tail---\n%s", tail)
	}
	return answer(text.String(), t), nil
}

// lastLines returns at most the last n bytes of s, without a first line that was cut.
func lastLines(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		return rest
	}
	return strings.ToValidUTF8(s, "")
}
