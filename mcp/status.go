package mcp

import (
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// statusTail is the maximum size of stdout_tail in bytes.
const statusTail = 16 << 10

func (s *Server) status() tool {
	return tool{
		name:        "sandbox_status",
		description: "Get a job's status, and after its end its exit code and stderr.",
		in: arguments(jobField,
			field("include_stdout_tail", "boolean", "The last 16 KiB of stdout too.")),
		out: results(append([]property{jobField, statusField,
			field("elapsed_seconds", "number", "from start to end, or to now").must(), exitField, messageField,
			field("stdout_tail", "string", ""), field("output_path", "string", "/out, on the host, after its end").minor(), costField, totalField}, toldFields...)...),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).tellStatus,
	}
}

func (c *call) tellStatus() (*sdk.CallToolResult, error) {
	j, err := c.job(c.engine.Status)
	if err != nil {
		return nil, err
	}
	t := tell(j, defaultOutput)
	seconds := elapsed(j, time.Now())
	t.Elapsed = &seconds
	if c.args.flag("include_stdout_tail") {
		tail := ""
		if j.Outcome != nil {
			tail = lastLines(j.Outcome.Stdout.Text, statusTail)
		}
		t.StdoutTail = &tail
	}
	var text strings.Builder
	t.heading(&text)
	section(&text, "stdout_tail---", t.StdoutTail)
	section(&text, "stderr---", t.Stderr)
	return ofJob(answer(text.String(), t), j), nil
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
