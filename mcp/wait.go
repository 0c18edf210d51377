package mcp

import (
	"cmp"
	"context"
	"strings"
	"time"

	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// defaultWait is how long sandbox_wait waits by default.
const defaultWait = 30 * time.Minute

func (s *Server) wait() tool {
	return tool{
		name:        "sandbox_wait",
		description: "Wait for a background job to end, and get its result.",
		more:        "If the timeout comes first, it returns status running; call it again to go on waiting.",
		in: arguments(jobField,
			field("timeout_seconds", "number", "Default 1800, at most 172800."), outputField.described(briefOutput)),
		out: results(append([]property{jobField, statusField, exitField, messageField,
			field("result_text", "string", "stdout, after its end; the head and the tail if it is long"), field("output_path", "string", "/out, on the host"),
			outputsField.minor(), costField, totalField}, toldFields...)...),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).awaitJob,
	}
}

// shownWhileWaiting is the number of bytes of a job's output in a progress message.
const shownWhileWaiting = 2 << 10

// jobsOutput returns the last lines that the job has written to stdout.
func (c *call) jobsOutput() session.Tail {
	j, err := c.engine.Status(c.ctx, c.args.text("job_id"))
	if err != nil || j.Outcome == nil {
		return session.Tail{}
	}
	return session.Tail{Text: lastLines(j.Outcome.Stdout.Text, shownWhileWaiting), Bytes: j.Outcome.Stdout.Bytes}
}

// goOn is the message of a wait that ended before the job did.
const goOn = "still running; call sandbox_wait again"

func (c *call) awaitJob() (*sdk.CallToolResult, error) {
	n, _ := c.args.seconds("timeout_seconds")
	most := seconds(n)
	if most == 0 {
		most = defaultWait
	}
	watch, stop := c.watch()
	defer stop()
	watch.Began(c.jobsOutput)
	j, err := c.job(func(ctx context.Context, id string) (*session.Job, error) { return c.engine.Wait(ctx, id, most) })
	if err != nil {
		return nil, err
	}
	t := tell(j, c.args.maxOutput())
	switch {
	case !j.Status.Over():
		t.Message = cmp.Or(t.Message, goOn)
	case j.Outcome != nil:
		result, _ := shorten(j.Outcome.Stdout, c.args.maxOutput())
		t.ResultText = &result
		t.Outputs = c.written(t.OutputPath)
	}
	var text strings.Builder
	t.heading(&text)
	section(&text, "", t.ResultText)
	section(&text, "stderr---", t.Stderr)
	return c.link(ofJob(answer(text.String(), t), j), t.Outputs), nil
}
