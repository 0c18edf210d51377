package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// told describes a job, for status, wait and cancel.
type told struct {
	jobs.Traits
	JobID      string      `json:"job_id"`
	Status     jobs.Status `json:"status"`
	Elapsed    *float64    `json:"elapsed_seconds,omitempty"`
	ExitCode   *int        `json:"exit_code,omitempty"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Stderr     *string     `json:"stderr,omitempty"`
	StdoutTail *string     `json:"stdout_tail,omitempty"`
	ResultText *string     `json:"result_text,omitempty"`
	OutputPath string      `json:"output_path,omitempty"`
	Cost       *float64    `json:"cost_usd,omitempty"`
	Total      *float64    `json:"total_usage_usd,omitempty"`
	news
	Outputs []output `json:"outputs,omitempty"`
	Denied  []string `json:"denied,omitempty"`
}

var (
	jobField     = field("job_id", "string", "").must().also("From a call with background=true, or from sandbox_list.")
	statusField  = field("status", "string", "").with("enum", []jobs.Status{jobs.Queued, jobs.Running, jobs.Succeeded, jobs.Failed, jobs.Cancelled}).must()
	messageField = field("message", "string", "why it failed, or what ended it")
	labelsField  = tableOf("labels", "Labels of a background job. sandbox_list shows them.")
	exitField    = field("exit_code", "integer", "after its end; a job whose command failed has succeeded too")
)

// toldFields are the fields of status and wait that only the reference has.
var toldFields = slices.Concat(minor(labelsField.described("labels of the job"), reasonField, stderrField), newsFields, minor(deniedField, warningField))

// tell returns the fields that status and wait share. most bounds stderr, in bytes.
func tell(j *session.Job, most int) told {
	t := told{Traits: j.Traits, JobID: j.ID, Status: j.Status, Message: j.Message}
	if j.Cost != nil {
		t.Cost, t.Total = &j.Cost.Own, &j.Cost.Total
	}
	if !j.Status.Over() || j.Outcome == nil {
		return t
	}
	if stderr, _ := endOf(j.Outcome.Stderr, most, ""); stderr != "" {
		t.Stderr = &stderr
	}
	if r := j.Outcome.Result; r != nil {
		t.ExitCode, t.OutputPath, t.news, t.Denied = &r.ExitCode, j.Outcome.OutputDir, newsOf(r), denied(r)
		if r.Reason != runner.Exited {
			t.Reason = string(r.Reason)
			t.Message = cmp.Or(t.Message, r.Detail)
		}
	}
	return t
}

// listedJob is one job of sandbox_list.
type listedJob struct {
	jobs.Traits
	ID       string      `json:"job_id"`
	Status   jobs.Status `json:"status"`
	ExitCode *int        `json:"exit_code,omitempty"`
	Elapsed  int64       `json:"elapsed_seconds"`
	Agent    bool        `json:"agent,omitempty"`
	Command  string      `json:"command,omitempty"`
}

func listedJobOf(j *session.Job, now time.Time) listedJob {
	out := listedJob{Traits: j.Traits, ID: j.ID, Status: j.Status, Elapsed: int64(elapsed(j, now)), Agent: j.Agent, Command: oneLine(j.Command)}
	if j.Status.Over() && j.Outcome != nil && j.Outcome.Result != nil {
		out.ExitCode = &j.Outcome.Result.ExitCode
	}
	return out
}

// heading writes the lines of a job's text form before its output. The exit code is there if it is not 0: the status of
// such a job is "succeeded" too.
func (t told) heading(b *strings.Builder) {
	fmt.Fprintf(b, "job_id: %s\nstatus: %s\n", t.JobID, t.Status)
	if t.Elapsed != nil {
		fmt.Fprintf(b, "elapsed_seconds: %.1f\n", *t.Elapsed)
	}
	b.WriteString(extraLines(t.Reason, t.Message, t.Denied, t.news))
	if t.ExitCode != nil && *t.ExitCode != 0 {
		fmt.Fprintf(b, "exit_code: %d\n", *t.ExitCode)
	}
	if t.Cost != nil {
		fmt.Fprintf(b, "cost_usd: %.4f\ntotal_usage_usd: %.4f\n", *t.Cost, *t.Total)
	}
}

// section writes a titled part of a text form, unless it is empty.
func section(b *strings.Builder, title string, text *string) {
	if text == nil || *text == "" {
		return
	}
	if had := b.String(); !strings.HasSuffix(had, "\n") {
		b.WriteByte('\n')
	}
	fmt.Fprintf(b, "---%s\n%s", title, *text)
}

// ofJob adds to _meta the fields of a job that ended.
func ofJob(r *sdk.CallToolResult, j *session.Job) *sdk.CallToolResult {
	if !j.Status.Over() || j.Outcome == nil || j.Outcome.Result == nil {
		return r
	}
	return withMeta(r, j.Outcome.Result, j.Outcome.Manifest)
}

// elapsed returns the run time of a job in seconds, until now or its end.
func elapsed(j *session.Job, now time.Time) float64 {
	if !j.Ended.IsZero() {
		now = j.Ended
	}
	return now.Sub(j.Started).Seconds()
}

// traits reads the arguments that are stored with a background job.
func (c *call) traits() (t jobs.Traits, err error) {
	t.Labels, err = c.args.table("labels")
	return t, err
}

// job reads job_id and calls f with it.
func (c *call) job(f func(context.Context, string) (*session.Job, error)) (*session.Job, error) {
	id, err := c.args.required("job_id")
	if err != nil {
		return nil, err
	}
	j, err := f(c.ctx, id)
	if errors.Is(err, session.ErrNoJob) {
		return nil, c.hinted(fmt.Errorf("%w: %s", session.ErrNoJob, id), "sandbox_list shows the jobs that this server knows")
	}
	return j, err
}

func cancelTool() tool {
	return tool{
		name:        "sandbox_cancel",
		description: "End a background job and its processes.", more: "Repeated calls are harmless.",
		in:    arguments(jobField),
		out:   results(jobField, statusField, warningField),
		hints: hints{destructive: true, idempotent: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			j, err := c.job(c.engine.Cancel)
			if err != nil {
				return nil, err
			}
			return answer(fmt.Sprintf("job_id: %s\nstatus: %s", j.ID, j.Status), told{JobID: j.ID, Status: j.Status}), nil
		},
	}
}

// announce sends one log message to the client when the job ends, if the client requested such
// messages (logging/setLevel).
func (c *call) announce(id string) {
	session, ctx := c.req.Session, context.Background()
	if c.req.ProtocolVersion() >= severalRounds { // in this protocol the call requests messages
		ctx = context.WithoutCancel(c.ctx)
	}
	go func() {
		j, err := c.engine.Wait(ctx, id, runner.Longest)
		if err != nil || !j.Status.Over() {
			return
		}
		message := j.Message
		if message == "" {
			message = "job " + string(j.Status)
			if o := j.Outcome; o != nil && o.Result != nil && o.Result.ExitCode != 0 {
				message = fmt.Sprintf("job %s with exit code %d", j.Status.With(o.Result), o.Result.ExitCode)
			}
		}
		session.Log(ctx, &sdk.LoggingMessageParams{
			Level: "info", Logger: "demesne.background-job",
			Data: map[string]any{"job_id": j.ID, "status": j.Status, "message": message},
		})
	}()
}

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
