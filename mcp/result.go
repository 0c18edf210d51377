package mcp

import (
	"fmt"

	"demesne/mcp/backend"
	"demesne/runner"
	"demesne/runner/jobs"
)

// ran is the result of a command, for script and exec, and the reply to a background script.
type ran struct {
	ExitCode        *int        `json:"exit_code,omitempty"`
	OutputDir       string      `json:"output_dir,omitempty"`
	JobID           string      `json:"job_id,omitempty"`
	Status          jobs.Status `json:"status,omitempty"` // only in a background reply
	Stdout          *string     `json:"stdout,omitempty"`
	Stderr          *string     `json:"stderr,omitempty"`
	StdoutTruncated bool        `json:"stdout_truncated,omitempty"`
	StderrTruncated bool        `json:"stderr_truncated,omitempty"`
	StdoutBytes     int64       `json:"stdout_bytes,omitempty"`
	StderrBytes     int64       `json:"stderr_bytes,omitempty"`
	news
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Manifest string   `json:"manifest,omitempty"`
	Outputs  []output `json:"outputs,omitempty"`
	Denied   []string `json:"denied,omitempty"`
	Receipt  *receipt `json:"receipt,omitempty"`
}

// news reports what happened to the sandbox before the command started.
type news struct {
	Restarted      bool     `json:"restarted,omitempty"`
	MissingSecrets []string `json:"missing_secrets,omitempty"`
	Replaced       bool     `json:"replaced,omitempty"`
}

func newsOf(r *runner.Result) news { return news{r.Restarted, r.MissingSecrets, r.Replaced} }

var (
	replacedField = field("replaced", "boolean", "the old sandbox of the key was removed with its files, and this one created")
	restartField  = field("restarted", "boolean", "the sandbox was started again with its files, without its earlier processes")
	missingField  = listOf("missing_secrets", "names of secrets that the sandbox was started without; their placeholders are not set")
)

// receipt is the part of a runner.Receipt that a model needs. The full receipt is in the result's
// _meta.
type receipt struct {
	Level    string   `json:"level"`
	Image    string   `json:"image"`
	Digest   string   `json:"image_digest,omitempty"`
	Network  string   `json:"network"`
	Degraded []string `json:"degraded,omitempty"` // names of layers and limits that are degraded or missing
}

func receiptOf(r *runner.Receipt) *receipt {
	if r == nil {
		return nil
	}
	out := &receipt{Level: string(r.Level), Image: r.Image, Digest: r.ImageDigest, Network: r.Network}
	for _, l := range r.Layers {
		if l.Status == runner.Degraded || l.Status == runner.Missing {
			out.Degraded = append(out.Degraded, l.Name)
		}
	}
	for _, l := range r.Limits {
		if l.Status == runner.Degraded || l.Status == runner.Missing {
			out.Degraded = append(out.Degraded, l.Name)
		}
	}
	return out
}

var receiptSchema = results(
	field("level", "string", "full, degraded or minimal").must(),
	field("image", "string", "").must(), field("image_digest", "string", ""),
	field("network", "string", "network access of the sandbox").must(),
	listOf("degraded", "weaker or missing isolation; demesne check explains it"),
)

// ranFields are the schema of the fields of ran that describe how a command ended.
var ranFields = []property{
	field("stdout_truncated", "boolean", "stdout is only the end of the stream"),
	field("stderr_truncated", "boolean", "stderr is only the end of the stream"),
	field("stdout_bytes", "integer", "of the whole stream, when truncated"),
	field("stderr_bytes", "integer", "of the whole stream, when truncated"),
	restartField, missingField, replacedField,
	field("reason", "string", "why it ended early: signaled, timed-out, oom, disk, pids, lost"),
	field("message", "string", "explanation of reason, one line"),
	listOf("denied", "connections that were refused, one line each"),
	{name: "receipt", schema: receiptSchema},
}

// outcome converts an Outcome. where is the directory with the complete logs, or empty.
func outcome(o *backend.RunResult, where string) ran {
	code := o.Result.ExitCode
	stdout, stderr := marked(o.Stdout, "stdout", runner.OutputKept, where), marked(o.Stderr, "stderr", runner.StderrKept, where)
	r := ran{
		ExitCode: &code, Stdout: &stdout, Stderr: &stderr, Denied: denied(o.Result), Receipt: receiptOf(o.Result.Receipt),
		news: newsOf(o.Result), StdoutTruncated: o.Stdout.Cut, StderrTruncated: o.Stderr.Cut,
	}
	if o.Stdout.Cut {
		r.StdoutBytes = o.Stdout.Bytes
	}
	if o.Stderr.Cut {
		r.StderrBytes = o.Stderr.Bytes
	}
	if o.Result.Reason != runner.Exited {
		r.Reason, r.Message = string(o.Result.Reason), o.Result.Detail
	}
	return r
}

// denied returns the refused connections of a command, one line each.
func denied(r *runner.Result) (lines []string) {
	for _, b := range r.Denied {
		line := b.String()
		if b.Times > 1 {
			line += fmt.Sprintf(" × %d", b.Times)
		}
		lines = append(lines, line)
	}
	return lines
}

// marked returns the text of t. If t is cut, a line in front says so.
func marked(t backend.Tail, stream string, limit int, where string) string {
	if !t.Cut {
		return t.Text
	}
	if where != "" {
		where = "; full log in " + where + "/" + stream + ".log"
	}
	return fmt.Sprintf("[%s truncated to last %d bytes%s]\n%s", stream, limit, where, t.Text)
}
