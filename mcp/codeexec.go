package mcp

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"demesne/internal/lazy"
	"demesne/kernels/code"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// codeError is an exception of the code, or the reason of its failure.
type codeError struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"`
}

// shown is a value that the code showed. Media have no data here, but are content of their own: clients that give a model
// the structured form would give it megabytes of base64.
type shown struct {
	Type  string `json:"type"`
	Data  string `json:"data,omitempty"`
	Bytes int    `json:"bytes"`
	File  string `json:"file,omitempty"`
}

// executed is the result of an execution.
type executed struct {
	Success         bool              `json:"success"`
	ID              string            `json:"session_id,omitempty"`
	Error           *codeError        `json:"error,omitempty"`
	Hint            string            `json:"hint,omitempty"`
	TimedOut        bool              `json:"timed_out,omitempty"`
	ExitCode        *int              `json:"exit_code,omitempty"`
	Result          map[string]string `json:"result,omitempty"`
	Stderr          string            `json:"stderr"`
	Stdout          string            `json:"stdout"`
	Outputs         []shown           `json:"display_outputs,omitempty"`
	OutputsDropped  int               `json:"display_outputs_dropped,omitempty"`
	StdoutTruncated bool              `json:"stdout_truncated,omitempty"`
	StderrTruncated bool              `json:"stderr_truncated,omitempty"`
	StdoutBytes     int64             `json:"stdout_bytes,omitempty"`
	StderrBytes     int64             `json:"stderr_bytes,omitempty"`
	ResultTruncated bool              `json:"result_truncated,omitempty"`
	Count           int               `json:"execution_count,omitempty"`
	OutputDir       string            `json:"output_dir,omitempty"`
	Denied          []string          `json:"denied,omitempty"`
}

var codeErrorField = property{name: "error", schema: results(field("type", "string", "such as ValueError, TimeoutError or CONTAINER_DIED").must(),
	field("message", "string", "").must(), field("traceback", "string", ""))}

var executedFields = results(
	field("success", "boolean", "the code ran to its end").must(), field("session_id", "string", "").minor(), codeErrorField, hintField.minor(),
	field("timed_out", "boolean", "the code was interrupted at its time limit").minor(), field("exit_code", "integer", "of a language without a kernel").minor(),
	property{name: "result", schema: map[string]any{"type": "object", "description": "the value of the last expression, by MIME type", "additionalProperties": map[string]any{"type": "string"}}},
	stderrField.must(), stdoutField.must(),
	arrayOf("display_outputs", "figures and other values that the code showed",
		field("type", "string", "MIME type").must(), field("data", "string", "of a text type; a picture or sound is content of its own"),
		field("bytes", "integer", "length of the whole").must(), field("file", "string", "path of the host with the whole")),
	field("display_outputs_dropped", "integer", "number of values that were not kept").minor(),
	field("stdout_truncated", "boolean", "stdout is not the whole stream").minor(), field("stderr_truncated", "boolean", "stderr is only the end of the stream").minor(),
	field("stdout_bytes", "integer", "of the whole stream, when truncated").minor(), field("stderr_bytes", "integer", "of the whole stream, when truncated").minor(),
	field("result_truncated", "boolean", "a text of result is only its beginning").minor(),
	field("execution_count", "integer", "of executions in the session").minor(), field("output_dir", "string", "/out, on the host").minor(), deniedField.minor(), inputsField, warningField,
)

func (s *Server) executeCodeTool() tool {
	in := []property{
		field("code", "string", "").must(), field("session_id", "string", "From create_session. Without it the code runs once, in a sandbox of its own."),
		field("language", "string", "For code without a session, such as python, node or shell."), codeTimeField(), hiddenSeconds, outputField.described(briefOutput),
	}
	for _, p := range s.sandboxFields() { // create_session describes them
		if p.schema["properties"] == nil {
			p = p.plain()
		}
		in = append(in, p)
	}
	return tool{
		name: "execute_code",
		description: "Execute code in a session of create_session, which keeps its variables, or once with a language. The last expression's value is the result. " +
			"Figures are shown and saved in output_dir. input() is refused.",
		more: "The arguments from dependencies on are as for create_session, for code without a session. Top-level await works in Python and Node.",
		in:   arguments(in...), out: executedFields,
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).executeCode,
	}
}

func (c *call) executeCode() (*sdk.CallToolResult, error) {
	r, err := c.executionRequest()
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	done, err := c.opts.Code.Execute(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	return c.executedResult(r, done), nil
}

// executionRequest reads the arguments of execute_code.
func (c *call) executionRequest() (r code.Request, err error) {
	text, err := c.codeText()
	if err != nil {
		return r, err
	}
	limit, err := c.codeTimeout(codeTime, maxCodeTime)
	switch {
	case err != nil:
		return r, err
	case c.args.text("session_id") != "":
		r, err = c.inSession()
	case c.args.text("language") == "":
		return r, fmt.Errorf("session_id or language is required\nhint: %s", c.liveSessions())
	default:
		r, err = c.codeRequest()
	}
	r.Code, r.Run.Command.Timeout, r.Run.Shown = text, limit, c.args.maxOutput()
	return r, err
}

// codeText reads the argument code.
func (c *call) codeText() (string, error) {
	code, err := c.args.required("code")
	if err == nil && strings.TrimSpace(code) == "" {
		err = fmt.Errorf("code is required")
	}
	if err == nil && len(code) > maxCode {
		err = fmt.Errorf("code is longer than %d bytes: import_files takes data", maxCode)
	}
	return code, err
}

// maxCode bounds the code of one call, in bytes.
const maxCode = 4 << 20

// inSession returns a request for an existing session. It refuses arguments of a new sandbox, which would be ignored: the
// model believes in a network or in limits that the session does not have.
func (c *call) inSession() (r code.Request, err error) {
	s, err := c.sessionOf()
	if err != nil {
		return r, err
	}
	for _, p := range c.Server.sandboxFields() {
		if c.args[p.name] != nil && p.name != askField.name {
			return r, fmt.Errorf("%s: the session has it from create_session: leave it out, or leave session_id out", p.name)
		}
	}
	r.Owner, r.Session, r.Language = c.owner(), s.ID, c.args.text("language")
	return r, nil
}

// Bounds of what a model sees of an execution, in bytes.
const (
	maxTraceback     = 8000
	maxExceptionText = 2000     // of an exception's message, which the traceback has too
	maxMedia         = 3 << 20  // of one picture or sound as content
	maxAllMedia      = 10 << 20 // of all
	mediaItems       = 8
)

// executedResult converts the outcome of an execution.
func (c *call) executedResult(r code.Request, d *code.Result) *sdk.CallToolResult {
	e := executed{Success: !d.Failed, ID: r.Session, TimedOut: d.TimedOut, ExitCode: d.ExitCode, Hint: d.Hint, Count: d.Count, OutputDir: d.OutputDir, OutputsDropped: d.Dropped, Denied: d.Denied}
	e.Stdout, e.StdoutTruncated = shorten(d.Stdout, r.Run.Shown)
	e.Stderr, e.StderrTruncated = endOf(d.Stderr, r.Run.Shown, "")
	if e.StdoutTruncated {
		e.StdoutBytes = d.Stdout.Bytes
	}
	if e.StderrTruncated {
		e.StderrBytes = d.Stderr.Bytes
	}
	if d.Failed {
		e.Error = errorOf(d)
		e.Hint = cmp.Or(e.Hint, packageHint(d, r.Session))
	}
	left := r.Run.Shown
	for _, mime := range plainFirst(d.Value) {
		text, cut := beginning(d.Value[mime], left)
		if e.ResultTruncated = e.ResultTruncated || cut; text == "" && cut {
			continue
		}
		if e.Result == nil {
			e.Result = map[string]string{}
		}
		e.Result[mime] = text
		left -= len(text)
	}
	var media []sdk.Content
	e.Outputs, media = shownOf(d.Outputs, r.Run.Shown)
	result := answer(e.text(), e)
	result.IsError = d.Died != ""
	result.Content = append(result.Content, media...)
	return result
}

// noModule finds Python's message about a module that is missing, and its name.
var noModule = lazy.Regexp{Expr: `(?m)^(?:ModuleNotFoundError: )?No module named '([A-Za-z_][A-Za-z0-9_]{0,99})(?:\.[A-Za-z0-9_.]*)?'`}

// packageHint says how code gets a Python package that it lacks. session is empty for code without one.
func packageHint(d *code.Result, session string) string {
	said := d.Message
	if d.Type != "ModuleNotFoundError" {
		if said = d.Stderr.Text; !strings.Contains(said, "ModuleNotFoundError: ") {
			return ""
		}
	}
	found := noModule.Get().FindStringSubmatch(escapes.Get().ReplaceAllString(said, ""))
	switch {
	case found == nil:
		return ""
	case session != "":
		return fmt.Sprintf("install_package installs it, or dependencies={%q: \"\"} of create_session; a package may have another name than its module", found[1])
	}
	return fmt.Sprintf("dependencies={%q: \"\"} installs it first; a package may have another name than its module", found[1])
}

// plainFirst returns the MIME types of texts in an order in which the plain one is the last to be cut.
func plainFirst(texts map[string]string) []string {
	return slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		switch {
		case a == b:
			return 0
		case a == "text/plain", b != "text/plain" && a < b:
			return -1
		}
		return 1
	})
}

// escapes are the control sequences of terminals with which some kernels colour a traceback.
var escapes = lazy.Regexp{Expr: "\x1b\\[[0-9;]*[A-Za-z]"}

func errorOf(d *code.Result) *codeError {
	e := &codeError{Type: d.Type, Message: escapes.Get().ReplaceAllString(d.Message, "")}
	if d.Died != "" {
		e.Type, e.Message = "CONTAINER_DIED", d.Died
	}
	e.Message, _ = beginning(e.Message, maxExceptionText)
	back := escapes.Get().ReplaceAllString(strings.Join(d.Traceback, "\n"), "")
	if len(back) > maxTraceback {
		first := firstLines(back, maxTraceback/4)
		back = strings.TrimSuffix(first, "\n") + "\n[…]\n" + endLines(back, maxTraceback-len(first))
	}
	e.Traceback = strings.ToValidUTF8(back, "\uFFFD")
	return e
}

// beginning returns a text of at most most bytes whole, or its beginning with a mark that has the count.
func beginning(s string, most int) (text string, cut bool) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s, false
	}
	if most <= 0 {
		return "", true
	}
	first := firstLines(s, most)
	return fmt.Sprintf("%s\n[%d of %d bytes left out]", strings.TrimSuffix(first, "\n"), len(s)-len(first), len(s)), true
}

// shownOf converts values that the code showed, and returns the pictures and sounds among them as content of their own. most
// bounds the texts of all of them; a text that would have to be cut, and would no longer be JSON or HTML, is left to its
// file.
func shownOf(list []code.Output, most int) (all []shown, media []sdk.Content) {
	room := maxAllMedia
	for _, o := range list {
		s := shown{Type: o.MIME, Bytes: max(len(o.Data), len(o.Text)), File: o.File}
		if s.File == "" || len(o.Text) <= most {
			s.Data, _ = beginning(o.Text, most)
		}
		most -= len(s.Data)
		if m := mediumOf(o); m != nil && len(o.Data) <= min(maxMedia, room) && len(media) < mediaItems {
			media = append(media, m)
			room -= len(o.Data)
		}
		all = append(all, s)
	}
	return all, media
}

// mediumOf returns a picture or a sound that models can take, or nil.
func mediumOf(o code.Output) sdk.Content {
	switch {
	case len(o.Data) == 0:
		return nil
	case slices.Contains([]string{"image/png", "image/jpeg", "image/gif", "image/webp"}, o.MIME):
		return &sdk.ImageContent{Data: o.Data, MIMEType: o.MIME}
	case strings.HasPrefix(o.MIME, "audio/"):
		return &sdk.AudioContent{Data: o.Data, MIMEType: o.MIME}
	}
	return nil
}

// text returns the text form: the end of the code first, then what it wrote.
func (e *executed) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "success: %t\n", e.Success)
	if e.ID != "" {
		fmt.Fprintf(&b, "session_id: %s\n", e.ID)
	}
	if e.ExitCode != nil {
		fmt.Fprintf(&b, "exit_code: %d\n", *e.ExitCode)
	}
	if e.Error != nil {
		fmt.Fprintf(&b, "error: %s: %s\n", e.Error.Type, e.Error.Message)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "hint: %s\n", e.Hint)
	}
	b.WriteString(extraLines("", "", e.Denied, news{}))
	for _, mime := range plainFirst(e.Result) {
		part(&b, "result "+mime, e.Result[mime])
	}
	part(&b, "stdout", e.Stdout)
	part(&b, "stderr", e.Stderr)
	for _, o := range e.Outputs {
		name := fmt.Sprintf("display_output %s, %d bytes", o.Type, o.Bytes)
		if o.File != "" {
			name += ": " + o.File
		}
		fmt.Fprintf(&b, "---%s---\n%s", name, lineEnd(o.Data))
	}
	if e.Error != nil {
		part(&b, "traceback", e.Error.Traceback)
	}
	return b.String()
}

// part writes a titled part of a text form, unless it is empty.
func part(b *strings.Builder, name, text string) {
	if text != "" {
		fmt.Fprintf(b, "---%s---\n%s", name, lineEnd(text))
	}
}

// lineEnd ends a text with the end of a line, unless it is empty.
func lineEnd(s string) string {
	if s == "" || strings.HasSuffix(s, "\n") {
		return s
	}
	return s + "\n"
}
