package mcp

import (
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/jobs"
	"demesne/session"
)

// ran is the result of a command, for script and exec, and the reply to a background script. Clients that show a model
// only the beginning of a result show how the command ended.
type ran struct {
	ExitCode        *int        `json:"exit_code,omitempty"`
	Status          jobs.Status `json:"status,omitempty"` // only in a background reply
	Reason          string      `json:"reason,omitempty"`
	Message         string      `json:"message,omitempty"`
	Stderr          *string     `json:"stderr,omitempty"`
	Stdout          *string     `json:"stdout,omitempty"`
	StdoutTruncated bool        `json:"stdout_truncated,omitempty"`
	StderrTruncated bool        `json:"stderr_truncated,omitempty"`
	StdoutBytes     int64       `json:"stdout_bytes,omitempty"`
	StderrBytes     int64       `json:"stderr_bytes,omitempty"`
	OutputDir       string      `json:"output_dir,omitempty"`
	JobID           string      `json:"job_id,omitempty"`
	news
	Outputs []output `json:"outputs,omitempty"`
	Denied  []string `json:"denied,omitempty"`

	Commands []ranStep `json:"commands,omitempty"` // of a list
}

// news are fields that the result of a command and a job that ended share: what happened to the sandbox before the command
// started. newsFields describes them.
type news struct {
	Restarted      bool     `json:"restarted,omitempty"`
	MissingSecrets []string `json:"missing_secrets,omitempty"`
	Replaced       bool     `json:"replaced,omitempty"`
}

func newsOf(r *runner.Result) news { return news{r.Restarted, r.MissingSecrets, r.Replaced} }

var (
	replacedField = field("replaced", "boolean", "the old sandbox of the key was removed with its files, and this one created")
	newsFields    = minor(
		field("restarted", "boolean", "the sandbox was started again with its files, without its earlier processes"),
		listOf("missing_secrets", "names of secrets that the sandbox was started without; their placeholders are not set"),
		replacedField)
	warningField = field("warning", "string", "arguments that were ignored, because they are unknown or cannot be read").minor()
	deniedField  = listOf("denied", "connections that were refused, one line each")
	inputsField  = listOf("inputs", "names of the inputs, one line each, if one got a number").minor()
)

// Keys of a result's _meta, for clients and their users: a model does not need them.
const receiptMeta, manifestMeta, usageMeta = "demesne/receipt", "demesne/manifest", "demesne/usage"

// receipt is a short runner.Receipt.
type receipt struct {
	Level    string            `json:"level"`
	Image    string            `json:"image"`
	Digest   string            `json:"image_digest,omitempty"`
	Network  string            `json:"network"`
	Limits   map[string]string `json:"limits,omitempty"`
	Degraded []string          `json:"degraded,omitempty"` // names of layers and limits that are degraded or missing
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
		if out.Limits == nil {
			out.Limits = map[string]string{}
		}
		out.Limits[l.Name] = l.Value
		if l.Status == runner.Degraded || l.Status == runner.Missing {
			out.Degraded = append(out.Degraded, l.Name)
		}
	}
	return out
}

// withMeta adds what a command used, the receipt, and the path of the manifest of the outputs. Each of them may be empty.
func withMeta(r *sdk.CallToolResult, o *runner.Result, manifest string) *sdk.CallToolResult {
	r.Meta = receiptAsMeta(o.Receipt)
	if manifest != "" {
		r.Meta[manifestMeta] = manifest
	}
	if o.Spent != (runner.Spent{}) {
		r.Meta[usageMeta] = o.Spent
	}
	return r
}

// receiptAsMeta returns a receipt as a result's _meta. It may be nil.
func receiptAsMeta(full *runner.Receipt) sdk.Meta {
	if full == nil {
		return sdk.Meta{}
	}
	return sdk.Meta{receiptMeta: receiptOf(full)}
}

var (
	exitCodeField   = field("exit_code", "integer", "of the command; 124: timed out; 128+n: ended by signal n")
	reasonField     = field("reason", "string", "why it ended early: signaled, timed-out, oom, disk, pids, budget, lost")
	ranMessageField = field("message", "string", "explanation of reason, one line")
	stderrField     = field("stderr", "string", "the last 16 KiB")
	stdoutField     = field("stdout", "string", "the head and the tail if it is longer than max_output_bytes, with the path of the whole between them")
)

// ranFields are the further fields of ran, which only the reference has.
var ranFields = slices.Concat(minor(
	field("stdout_truncated", "boolean", "stdout is not the whole stream"),
	field("stderr_truncated", "boolean", "stderr is only the end of the stream"),
	field("stdout_bytes", "integer", "of the whole stream, when truncated"),
	field("stderr_bytes", "integer", "of the whole stream, when truncated"),
), newsFields, minor(deniedField, inputsField, warningField))

// defaultOutput is the default of max_output_bytes: as much as current clients show to a model.
const defaultOutput = 24000

// outcome converts an Outcome. where is the directory with the complete logs, or empty. most bounds stdout, in bytes.
func outcome(o *session.RunResult, where string, most int) ran {
	code := o.Result.ExitCode
	stdout, cut := shorten(o.Stdout, most)
	stderr, less := endOf(o.Stderr, most, where)
	r := ran{
		ExitCode: &code, Stdout: &stdout, Stderr: &stderr, Denied: denied(o.Result),
		news: newsOf(o.Result), StdoutTruncated: cut, StderrTruncated: less,
	}
	if cut {
		r.StdoutBytes = o.Stdout.Bytes
	}
	if less {
		r.StderrBytes = o.Stderr.Bytes
	}
	if o.Result.Reason != runner.Exited {
		r.Reason, r.Message = string(o.Result.Reason), o.Result.Detail
	}
	return r
}

// lines returns the text form's lines about a command, in addition to its exit code and output: how it ended early, what was
// refused, and what happened to its sandbox before.
func (r *ran) lines() string {
	return extraLines(r.Reason, r.Message, r.Denied, r.news)
}

func extraLines(reason, message string, denied []string, n news) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, text.SafeLine(value))
		}
	}
	line("reason", reason)
	line("message", message)
	for _, d := range denied {
		line("denied", d)
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"restarted", n.Restarted}, {"replaced", n.Replaced}} {
		if f.on {
			line(f.name, "true")
		}
	}
	line("missing_secrets", strings.Join(n.MissingSecrets, ", "))
	return b.String()
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

// shorten returns a stream of at most most bytes unchanged. From a longer one it returns the head and the tail, and between
// them a line that names the file with the whole.
func shorten(t session.Tail, most int) (shown string, cut bool) {
	if !t.Cut && len(t.Text) <= most {
		return t.Text, false
	}
	head := t.Head
	if !t.Cut {
		head = t.Text
	}
	head = firstLines(head, most/2)
	tail := endLines(t.Text, most-len(head))
	where := ""
	if t.File != "" {
		where = "; all of it: " + t.File
	}
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return fmt.Sprintf("%s[%d of %d bytes left out%s]\n%s", head, max(t.Bytes-int64(len(head)+len(tail)), 0), t.Bytes, where, tail), true
}

// longLine is the part of a bound, in percent, that a cut line may have to be dropped: else it is the output.
const longLine = 25

// firstLines returns at most the first n bytes of s. It drops a last line that was cut, unless that is long.
func firstLines(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[:n]
	if end := strings.LastIndexByte(s, '\n'); end+1 >= n*(100-longLine)/100 {
		return s[:end+1]
	}
	return strings.ToValidUTF8(s, "")
}

// endLines returns at most the last n bytes of s, from the beginning of a line.
func endLines(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if begin := strings.IndexByte(s, '\n'); begin >= 0 && begin < n*longLine/100 {
		return s[begin+1:]
	}
	return strings.ToValidUTF8(s, "")
}

// endOf returns the end of stderr. If it is cut, a line in front says so: the original demesne's line.
func endOf(t session.Tail, most int, where string) (shown string, cut bool) {
	if !t.Cut && len(t.Text) <= most {
		return t.Text, false
	}
	if where != "" {
		where = "; full log in " + where + "/stderr.log"
	}
	shown = t.Text
	if len(shown) > most {
		shown = endLines(shown, most)
	}
	return fmt.Sprintf("[stderr truncated to last %d bytes%s]\n%s", min(runner.StderrKept, most), where, shown), true
}
