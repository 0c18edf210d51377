package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
	"demesne/runner"
)

// defaultWait is how long sandbox_wait waits by default.
const defaultWait = 30 * time.Minute

func (s *Server) wait() tool {
	return tool{
		name:        "sandbox_wait",
		description: "Wait for a background job to end, and get its result. If the timeout comes first, it returns the status; call it again to go on waiting.",
		in: arguments(jobField,
			field("timeout_seconds", "number", "Seconds to wait, at most 172800.").with("default", defaultWait.Seconds())),
		out: results(jobField, statusField, messageField,
			field("result_text", "string", "stdout, after its end"), field("output_path", "string", "/out, on the host"), exitField, outputsField, manifestField,
			restartField, missingField, replacedField,
			listOf("denied", "connections that were refused"), property{name: "receipt", schema: receiptSchema},
			costField, totalField),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).awaitJob,
	}
}

// shownWhileWaiting is the number of bytes of a job's output in a progress message.
const shownWhileWaiting = 2 << 10

// jobsOutput returns the last lines that the job has written to stdout, and the number of bytes so
// far.
func (c *call) jobsOutput() (tail string, n int64) {
	j, err := c.engine.Status(c.ctx, c.args.text("job_id"))
	if err != nil || j.Outcome == nil {
		return "", 0
	}
	return lastLines(j.Outcome.Stdout.Text, shownWhileWaiting), j.Outcome.Stdout.Bytes
}

func (c *call) awaitJob() (*sdk.CallToolResult, error) {
	most := seconds(c.args.number("timeout_seconds"))
	if most == 0 {
		most = defaultWait
	}
	watch, stop := c.watch()
	defer stop()
	watch.Output(c.jobsOutput)
	j, err := c.job(func(ctx context.Context, id string) (*backend.Job, error) { return c.engine.Wait(ctx, id, most) })
	if err != nil {
		return nil, err
	}
	t := tell(j)
	var text strings.Builder
	fmt.Fprintf(&text, "job_id: %s\nstatus: %s", t.JobID, t.Status)
	if t.Message != "" {
		fmt.Fprintf(&text, "\nmessage: %s", t.Message)
	}
	if j.Status.Over() && j.Outcome != nil {
		result := marked(j.Outcome.Stdout, "stdout", runner.OutputKept, "output_path")
		t.ResultText = &result
		fmt.Fprintf(&text, "\n---\n%s", result)
		t.Outputs = c.written(t.OutputPath)
	}
	return c.link(answer(text.String(), t), t.Outputs), nil
}
