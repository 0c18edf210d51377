package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/server/hostcmd"
)

// Times that a call waits for a person, in seconds.
const (
	hostWait    = 45 // most clients wait for a minute
	maxHostWait = 600
)

var (
	hostReason       = field("reason", "string", "Why, for the person who decides.")
	hostWaitField    = field("wait_seconds", "number", "How long to wait for that person.").with("default", hostWait).also(fmt.Sprintf("At most %d.", maxHostWait))
	hostRequestField = field("request_id", "string", "Of an earlier call that is pending: get its result, in place of the other arguments.")
	hostPath         = field("path", "string", "Absolute path on the host.")
)

// hostDecision are the fields of all results of the set.
func hostFields(more ...property) map[string]any {
	return results(append([]property{
		field("status", "string", "done, pending, refused, expired, failed, granted or lost").must(),
		field("request_id", "string", "of a request that a person decides about"), field("message", "string", "what to do now, or why it did not happen"),
		field("expires", "string", "RFC 3339; the end of a pending request or of a grant"),
	}, append(more, warningField)...)...)
}

// hostTools are the tools of the set "host". None of them decides about a request: only a person does, elsewhere.
func (*Server) hostTools() []tool {
	return []tool{hostExecTool(), hostRequestTool(), hostListTool(), hostReadTool(), hostWriteTool(), hostDirTool(), hostCopyTool()}
}

func hostExecTool() tool {
	return tool{
		name: "host_exec",
		description: "Run one program on the host itself, outside of any sandbox. A command outside the operator's list waits until a person approves it. " +
			"Prefer a sandbox for everything else.",
		more: "No shell is involved: there are no pipes, variables or wildcards. An approved command runs once, when it is approved.",
		in: arguments(listOf("argv", "The program and its arguments, one word each.").also("Needed without command."),
			field("command", "string", "The same in one text, with quotes as in a shell."), field("cwd", "string", "Directory on the host. Default the operator's."),
			field("timeout_seconds", "number", "Then the command is killed. At most the operator's, which is the default."),
			field("max_output_bytes", "integer", "Of the end of each stream.").with("default", 30000), hostReason, hostWaitField, hostRequestField),
		out: hostFields(field("exit_code", "integer", "128+n after signal n"), field("stderr", "string", ""), field("stdout", "string", ""), field("timed_out", "boolean", ""),
			field("stdout_bytes", "integer", "of all of it, if it was cut").minor(), field("stderr_bytes", "integer", "").minor()),
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).hostExec,
	}
}

func hostRequestTool() tool {
	return tool{
		name:        "request_host_access",
		description: "Ask a person for a pattern of host commands that you need several times, such as docker restart *. list_host_access shows what is allowed already.",
		more:        "* stands for one word, or a part of one, and ** at the end for any number of words. It is not an option, has no slash and none of =$();|&<>`, and begins with no dot. A pattern that lets a known program execute any command is refused. A grant ends after a time.",
		in: arguments(field("pattern", "string", "").must().also("Or a list of words."), hostReason, hostWaitField,
			hostRequestField),
		out:    hostFields(),
		hints:  hints{openWorld: true},
		handle: (*call).hostRequest,
	}
}

func hostListTool() tool {
	return tool{
		name:        "list_host_access",
		description: "List the host commands and directories that you may use without a question, and your requests.",
		in:          arguments(),
		out: results(field("enabled", "boolean", "").must(), listOf("allow", "patterns of commands"), listOf("directories", "where they may start"),
			listOf("read", "directories"), listOf("write", "directories"), field("ask", "boolean", "a person can allow more").must(),
			arrayOf("requests", "the oldest first", field("request_id", "string", "").must(), field("status", "string", "").must(), field("request", "string", "").must(), field("expires", "string", "")), warningField),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).hostList,
	}
}

func hostReadTool() tool {
	return tool{
		name:        "host_file_read",
		description: "Read a file of the host. Outside of the operator's directories a person is asked.",
		in: arguments(hostPath.must(), field("offset", "integer", "The first byte, from 0.").with("default", 0), field("limit", "integer", "Bytes, at most 262144."),
			field("encoding", "string", "").with("enum", []string{"text", "base64"}).with("default", "text"), hostReason, hostWaitField, hostRequestField),
		out:    hostFields(field("content", "string", ""), field("encoding", "string", ""), field("size", "integer", "of the whole file"), field("next_offset", "integer", "of the rest")),
		hints:  hints{readOnly: true, idempotent: true, openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) { return c.hostFile(hostcmd.Read, "") },
	}
}

func hostWriteTool() tool {
	return tool{
		name:        "host_file_write",
		description: "Create or replace a file of the host. Outside of the operator's directories, and for hidden files, a person is asked.",
		in: arguments(hostPath.must(), field("content", "string", "At most 1 MiB.").must(), field("encoding", "string", "of content").with("enum", []string{"text", "base64"}).with("default", "text"),
			hostReason, hostWaitField, hostRequestField),
		out:    hostFields(field("size", "integer", "written"), field("created", "boolean", "the file did not exist")),
		hints:  hints{destructive: true, idempotent: true, openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) { return c.hostFile(hostcmd.Write, "") },
	}
}

func hostDirTool() tool {
	return tool{
		name:        "host_file_list",
		description: "List a directory of the host, at most 1000 entries. Outside of the operator's directories a person is asked.",
		in:          arguments(hostPath.must(), hostReason, hostWaitField, hostRequestField),
		out: hostFields(arrayOf("entries", "", field("name", "string", "").must(), field("type", "string", "file, directory, link or other").must(), field("size", "integer", "").must(),
			field("mode", "string", "").must(), field("modified", "string", "").must()), cutField),
		hints:  hints{readOnly: true, idempotent: true, openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) { return c.hostFile(hostcmd.List, "") },
	}
}

func hostCopyTool() tool {
	return tool{
		name:        "host_file_copy",
		description: "Copy a file or directory of the host into a sandbox, such as to /workspace/NAME. Outside of the operator's directories a person is asked. Links and special files are skipped.",
		in:          arguments(hostPath.must(), boxField, field("dst", "string", "Absolute path of the copy in the sandbox.").must(), hostReason, hostWaitField, hostRequestField),
		out:         hostFields(field("size", "integer", "bytes copied"), field("skipped", "integer", "entries that were skipped")),
		hints:       hints{destructive: true, openWorld: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			return c.hostFile(hostcmd.Copy, c.args.text("sandbox_id"))
		},
	}
}

var errHostOff = errors.New("the operator has turned host access off")

// hostResult is the result of the set's tools.
type hostResult struct {
	Status  hostcmd.State `json:"status"`
	ID      string        `json:"request_id,omitempty"`
	Message string        `json:"message,omitempty"`
	Expires string        `json:"expires,omitempty"`

	ExitCode    *int            `json:"exit_code,omitempty"`
	Stderr      *string         `json:"stderr,omitempty"`
	Stdout      *string         `json:"stdout,omitempty"`
	TimedOut    bool            `json:"timed_out,omitempty"`
	StdoutBytes int64           `json:"stdout_bytes,omitempty"`
	StderrBytes int64           `json:"stderr_bytes,omitempty"`
	Content     *string         `json:"content,omitempty"`
	Encoding    string          `json:"encoding,omitempty"`
	Size        *int64          `json:"size,omitempty"`
	Next        int64           `json:"next_offset,omitempty"`
	Created     *bool           `json:"created,omitempty"`
	Entries     []hostcmd.Entry `json:"entries,omitempty"`
	Cut         bool            `json:"truncated,omitempty"`
	Skipped     int             `json:"skipped,omitempty"`
}

// hostCaller returns who asks. The name is the client's own, and only a person reads it.
func (c *call) hostCaller() hostcmd.Caller {
	by := hostcmd.Caller{Namespace: c.opts.Namespace, Over: hostcmd.OverMCP}
	if p := c.req.Session.InitializeParams(); p != nil && p.ClientInfo != nil {
		by.Name = p.ClientInfo.Name[:min(len(p.ClientInfo.Name), 64)]
	}
	return by
}

// hostDo performs a request, or collects the one that request_id names.
func (c *call) hostDo(ask func() (hostcmd.Ask, error)) (*sdk.CallToolResult, error) {
	if c.opts.Host == nil {
		return nil, errHostOff
	}
	wait, ok := c.args.seconds("wait_seconds")
	if !ok || wait < 0 || wait > maxHostWait {
		return nil, fmt.Errorf("wait_seconds must be a number of seconds, at most %d", maxHostWait)
	}
	if c.args["wait_seconds"] == nil {
		wait = hostWait
	}
	_, stop := c.watch()
	defer stop()
	patience := time.Duration(wait * float64(time.Second))
	if id := c.args.text("request_id"); id != "" {
		o, err := c.opts.Host.Collect(c.ctx, c.hostCaller(), id, patience)
		return c.hostAnswer(o, err)
	}
	a, err := ask()
	if err != nil {
		return nil, err
	}
	a.Reason = c.args.text("reason")
	o, err := c.opts.Host.Do(c.ctx, c.hostCaller(), a, patience)
	return c.hostAnswer(o, err)
}

func (c *call) hostExec() (*sdk.CallToolResult, error) {
	return c.hostDo(func() (a hostcmd.Ask, err error) {
		a.Kind, a.Dir, a.Output = hostcmd.Exec, c.args.text("cwd"), int(min(c.args.whole("max_output_bytes"), 1<<30))
		n, ok := c.args.seconds("timeout_seconds")
		if !ok || n < 0 {
			return a, errors.New("timeout_seconds must be a number of seconds")
		}
		a.Timeout = seconds(n)
		a.Argv, err = c.hostWords("argv", "command")
		return a, err
	})
}

// hostWords reads a list of words, or one text that is split without a shell.
func (c *call) hostWords(list, line string) ([]string, error) {
	if c.args[list] != nil {
		words, err := c.args.texts(list)
		if err == nil && c.args.text(line) != "" {
			err = fmt.Errorf("%s and %s: give one of them", list, line)
		}
		return words, err
	}
	text := c.args.text(line)
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("%s is required", list)
	}
	words, err := hostcmd.Split(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	return words, nil
}

func (c *call) hostRequest() (*sdk.CallToolResult, error) {
	return c.hostDo(func() (a hostcmd.Ask, err error) {
		a.Kind = hostcmd.Access
		if _, isText := c.args["pattern"].(string); isText {
			a.Argv = strings.Fields(c.args.text("pattern"))
		} else {
			a.Argv, err = c.args.texts("pattern")
		}
		return a, err
	})
}

func (c *call) hostFile(kind hostcmd.Kind, sandbox string) (*sdk.CallToolResult, error) {
	return c.hostDo(func() (a hostcmd.Ask, err error) {
		a = hostcmd.Ask{Kind: kind, Offset: c.args.whole("offset"), Limit: c.args.whole("limit"), Sandbox: sandbox, Dst: c.args.text("dst")}
		if a.Path, err = c.args.required("path"); err != nil || kind != hostcmd.Write {
			return a, err
		}
		text, err := c.args.required("content")
		if a.Content = []byte(text); err == nil && c.args.text("encoding") == "base64" {
			if a.Content, err = base64.StdEncoding.DecodeString(text); err != nil {
				err = fmt.Errorf("content is not base64: %w", err)
			}
		}
		return a, err
	})
}

// hostAnswer returns what has become of a request.
func (c *call) hostAnswer(o *hostcmd.Outcome, err error) (*sdk.CallToolResult, error) {
	if err != nil {
		return nil, err
	}
	r := hostResult{Status: o.State, ID: o.ID, Message: o.Why}
	end := o.Expires
	switch o.State {
	case hostcmd.Pending:
		r.Message = "A person must approve this: demesne approve. Call again with this request_id to wait for it; do not try another way."
	case hostcmd.Approved, hostcmd.Running:
		r.Message = "It was approved and runs. Call again with this request_id."
	case hostcmd.Granted:
		end = o.Until
	}
	if !end.IsZero() {
		r.Expires = end.UTC().Format(time.RFC3339)
	}
	if o.Result != nil {
		r.fill(o.Result, c.args.text("encoding"))
	}
	result := answer(r.text(), r)
	result.IsError = o.State == hostcmd.Refused || o.State == hostcmd.Failed || o.State == hostcmd.Expired || o.State == hostcmd.Lost
	return result, nil
}

func (r *hostResult) fill(d *hostcmd.Result, encoding string) {
	switch d.Kind {
	case hostcmd.Exec:
		r.ExitCode, r.Stdout, r.Stderr, r.TimedOut = &d.Exit, &d.Stdout.Text, &d.Stderr.Text, d.TimedOut
		if d.Stdout.Cut() {
			r.StdoutBytes = d.Stdout.Bytes
		}
		if d.Stderr.Cut() {
			r.StderrBytes = d.Stderr.Bytes
		}
	case hostcmd.Read:
		text := string(d.Content)
		if r.Encoding = "text"; encoding == "base64" || !utf8.Valid(d.Content) {
			r.Encoding, text = "base64", base64.StdEncoding.EncodeToString(d.Content)
		}
		r.Content, r.Size, r.Next = &text, &d.Size, d.Next
	case hostcmd.Write:
		r.Size, r.Created = &d.Size, &d.Created
	case hostcmd.List:
		r.Cut, r.Entries = d.Cut, d.Entries
	case hostcmd.Copy:
		r.Size, r.Skipped = &d.Size, d.Skipped
	}
}

// text is the result for clients that show only texts.
func (r *hostResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "status: %s\n", r.Status)
	if r.Status != hostcmd.Done {
		fmt.Fprintf(&b, "request_id: %s\n%s\n", r.ID, r.Message)
	}
	switch {
	case r.ExitCode != nil:
		fmt.Fprintf(&b, "exit_code: %d\n---\n%s\n---stderr---\n%s", *r.ExitCode, *r.Stdout, *r.Stderr)
	case r.Content != nil:
		fmt.Fprintf(&b, "size: %d\n---\n%s", *r.Size, *r.Content)
	case r.Size != nil:
		fmt.Fprintf(&b, "size: %d\n", *r.Size)
	}
	for _, e := range r.Entries {
		fmt.Fprintf(&b, "%s %s %d\n", e.Mode, plainName(e.Name), e.Size)
	}
	return b.String()
}

func (c *call) hostList() (*sdk.CallToolResult, error) {
	if c.opts.Host == nil {
		return nil, errHostOff
	}
	type request struct {
		ID      string        `json:"request_id"`
		Status  hostcmd.State `json:"status"`
		What    string        `json:"request"`
		Expires string        `json:"expires,omitempty"`
	}
	got := c.opts.Host.Access(c.hostCaller())
	out := struct {
		Enabled     bool      `json:"enabled"`
		Allow       []string  `json:"allow,omitempty"`
		Directories []string  `json:"directories,omitempty"`
		Read        []string  `json:"read,omitempty"`
		Write       []string  `json:"write,omitempty"`
		Ask         bool      `json:"ask"`
		Requests    []request `json:"requests,omitempty"`
	}{got.On, got.Allow, got.Directories, got.Read, got.Write, got.Ask, nil}
	text := fmt.Sprintf("enabled: %t\nask: %t\n", got.On, got.Ask)
	for _, line := range []struct {
		name string
		list []string
	}{{"allow", got.Allow}, {"directory", got.Directories}, {"read", got.Read}, {"write", got.Write}} {
		for _, one := range line.list {
			text += line.name + ": " + one + "\n"
		}
	}
	for _, r := range got.Requests {
		one := request{r.ID, r.State, r.What, ""}
		if !r.Expires.IsZero() {
			one.Expires = r.Expires.UTC().Format(time.RFC3339)
		}
		out.Requests = append(out.Requests, one)
		text += fmt.Sprintf("request_id: %s status: %s %s\n", one.ID, one.Status, one.What)
	}
	return answer(text, out), nil
}
