package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"demesne/kernels/code"
	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func terminalTool() tool {
	return tool{
		name:        "execute_terminal",
		description: "Run a shell command in the sandbox of a session, beside its kernel, in /out.",
		in: arguments(sessionField, field("command", "string", "").must(),
			codeTimeField().described("Seconds, 1 to 300. Then the command is killed."), hiddenSeconds,
			outputField.described(briefOutput), envField, cwdField("/out"), stdinField),
		out:    results(append([]property{exitCodeField.must(), reasonField.minor(), ranMessageField.minor(), stderrField.must(), stdoutField.must()}, ranFields...)...),
		hints:  hints{destructive: true, openWorld: true},
		handle: (*call).executeTerminal,
	}
}

func (c *call) executeTerminal() (*sdk.CallToolResult, error) {
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	limit, err := c.codeTimeout(codeTime, maxCodeTime)
	if err != nil {
		return nil, err
	}
	var r session.Request
	if err := c.commandRequest(&r); err != nil {
		return nil, err
	}
	r.Run.Command.Timeout = limit
	watch, stop := c.watch()
	defer stop()
	o, err := c.engine.Exec(c.ctx, s.Sandbox, r, watch)
	if err != nil {
		return nil, err
	}
	out := outcome(o, "", r.Run.Shown)
	text := fmt.Sprintf("exit_code: %d\n%s---\n%s\n---stderr---\n%s", *out.ExitCode, out.lines(), *out.Stdout, *out.Stderr)
	return withMeta(answer(text, out), o.Result, o.Manifest), nil
}

// Times of an installation, in seconds.
const (
	installTime    = 300
	maxInstallTime = 1800
)

// hiddenPackage is one name in place of packages. It is understood, in a text or a list.
var hiddenPackage = property{name: "package", schema: map[string]any{"type": "string"}, hidden: true}

func installTool() tool {
	return tool{
		name:        "install_package",
		description: "Install packages in a session with the language's installer (pip, npm, …). The session needs network: egress=package-managers.",
		in: arguments(sessionField, listOf("packages", "Names, such as numpy or pandas==2.2.3.").must(), hiddenPackage,
			field("timeout", "number", "Seconds, 1 to 1800.").with("default", installTime), hiddenSeconds),
		out: results(field("success", "boolean", "").must(), field("session_id", "string", "").must(), listOf("packages", "").must(),
			field("stderr", "string", "the end of what the installer wrote"), field("error", "string", ""), hintField, warningField),
		hints:  hints{openWorld: true},
		handle: (*call).installPackages,
	}
}

func (c *call) installPackages() (*sdk.CallToolResult, error) {
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	r := code.Request{Owner: c.owner(), Session: s.ID, Language: s.Language}
	named := c.args["packages"]
	if named == nil {
		named = c.args["package"] // one name
	}
	if r.Dependencies, err = dependencies(named); err != nil {
		return nil, errors.New("packages must be an array of strings, such as [\"numpy\", \"pandas==2.2.3\"]")
	}
	if len(r.Dependencies) == 0 {
		return nil, errors.New("packages is required")
	}
	if r.Run.Command.Timeout, err = c.codeTimeout(installTime, maxInstallTime); err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	d, err := c.opts.Code.Install(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	return installed(s, r, d), nil
}

func installed(s *code.SessionInfo, r code.Request, d *code.Result) *sdk.CallToolResult {
	out := struct {
		Success  bool     `json:"success"`
		ID       string   `json:"session_id"`
		Error    string   `json:"error,omitempty"`
		Hint     string   `json:"hint,omitempty"`
		Packages []string `json:"packages"`
		Stderr   string   `json:"stderr,omitempty"`
	}{Success: !d.Failed, ID: s.ID, Error: d.Message, Hint: d.Hint, Packages: r.Dependencies}
	out.Stderr, _ = endOf(d.Stderr, maxTraceback, "")
	if out.Hint == "" && d.Failed {
		out.Hint = installHint(s)
	}
	text := fmt.Sprintf("success: %t\npackages: %s\n", out.Success, strings.Join(r.Dependencies, ", "))
	for _, line := range []struct{ name, text string }{{"error", out.Error}, {"hint", out.Hint}} {
		if line.text != "" {
			text += line.name + ": " + line.text + "\n"
		}
	}
	if d.Failed && out.Stderr != "" {
		text += "---stderr---\n" + out.Stderr
	}
	return answer(text, out)
}

// placeFields are the fields of a place in code.
var placeFields = []property{
	field("line", "integer", "from 1").must(), field("column", "integer", "from 1").must(), field("message", "string", "").must(),
}

// place is a place in code. The line is 0 if it is not known.
type place struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// placesOf converts places, and adds a line for each to a text.
func placesOf(all []code.Problem, prefix string, text *string) []place {
	list := []place{}
	for _, p := range all {
		list = append(list, place(p))
		*text += fmt.Sprintf("%sline %d, column %d: %s\n", prefix, p.Line, p.Column, p.Message)
	}
	return list
}

func (s *Server) validateTool() tool {
	return tool{
		name:        "validate_code",
		description: "Check the syntax of code with the language's own parser, in a sandbox. The code is not executed.",
		in: arguments(field("code", "string", "").must(), field("language", "string", "").also("Needed without session_id."),
			field("session_id", "string", "Check for a session: its language and image."),
			s.opts.imageField().described("As in sandbox_script. Default "+s.opts.Image+"."),
			field("fix_imports", "boolean", "Return Python or JavaScript with the imports that it lacks.").with("default", false),
			field("dangerous_patterns", "boolean", "Report lines such as eval or rm -r /. A help for review, no security boundary.").with("default", false)),
		out: results(field("valid", "boolean", "").must(), field("language", "string", ""), arrayOf("errors", "that the parser found", placeFields...).must(),
			arrayOf("patterns", "lines that deserve a look: neither all such lines nor only such lines", placeFields...).minor(),
			field("fixed_code", "string", "the code with the imports").minor(), listOf("imports", "that fixed_code adds").minor(), warningField),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).validateCode,
	}
}

func (c *call) validateCode() (*sdk.CallToolResult, error) {
	text, err := c.codeText()
	if err != nil {
		return nil, err
	}
	var r code.Request
	switch {
	case c.args.text("session_id") != "":
		var s *code.SessionInfo
		if s, err = c.sessionOf(); err != nil {
			return nil, err
		}
		r.Owner, r.Session, r.Language = c.owner(), s.ID, s.Language
	case c.args.text("language") == "":
		return nil, fmt.Errorf("language or session_id is required")
	default:
		if r, err = c.codeRequest(); err != nil {
			return nil, err
		}
	}
	r.Code, r.FixImports, r.Patterns = text, c.args.flag("fix_imports"), c.args.flag("dangerous_patterns")
	watch, stop := c.watch()
	defer stop()
	d, err := c.opts.Code.Check(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	out := struct {
		Valid    bool     `json:"valid"`
		Language string   `json:"language"`
		Errors   []place  `json:"errors"`
		Patterns []place  `json:"patterns,omitempty"`
		Fixed    string   `json:"fixed_code,omitempty"`
		Imports  []string `json:"imports,omitempty"`
	}{Valid: len(d.Problems) == 0, Language: r.Language, Fixed: d.Fixed, Imports: d.Imports}
	text = fmt.Sprintf("valid: %t\n", out.Valid)
	out.Errors = placesOf(d.Problems, "", &text)
	out.Patterns = placesOf(d.Patterns, "pattern: ", &text)
	for _, line := range d.Imports {
		text += "missing: " + line + "\n"
	}
	if d.Fixed != "" {
		text += "---fixed_code---\n" + lineEnd(d.Fixed)
	}
	return answer(text, out), nil
}

func kernelTool() tool {
	return tool{
		name:        "kernel_action",
		description: "Restart the kernel of a session, without its variables and with its files, or ping it: ready, busy or dead.",
		in:          arguments(sessionField, field("action", "string", "").with("enum", []string{"restart", "ping"}).must()),
		out: results(field("success", "boolean", "").must(), field("session_id", "string", "").must(), field("status", "string", "ready, busy or dead").must(),
			field("error", "string", "why it is dead"), hintField, warningField),
		hints:  hints{destructive: true},
		handle: (*call).kernelAction,
	}
}

func (c *call) kernelAction() (*sdk.CallToolResult, error) {
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	out := struct {
		Success bool   `json:"success"`
		ID      string `json:"session_id"`
		Status  string `json:"status"`
		Error   string `json:"error,omitempty"`
		Hint    string `json:"hint,omitempty"`
	}{Success: true, ID: s.ID, Status: "ready"}
	var busy bool
	switch action := c.args.text("action"); action {
	case "restart":
		if _, err = c.opts.Code.Restart(c.ctx, c.owner(), s.ID); err != nil {
			return nil, err
		}
	case "ping":
		busy, err = c.opts.Code.Ping(c.ctx, c.owner(), s.ID)
	default:
		return nil, fmt.Errorf("action %s is not restart or ping", clipped(action))
	}
	switch {
	case err != nil:
		out.Success, out.Status, out.Error = false, "dead", err.Error()
		out.Hint = "kernel_action with restart starts a new kernel on the session's files"
	case busy:
		out.Status = "busy"
	}
	text := fmt.Sprintf("session_id: %s\nstatus: %s\n", out.ID, out.Status)
	if out.Error != "" {
		text += "error: " + out.Error + "\nhint: " + out.Hint + "\n"
	}
	return answer(text, out), nil
}

func bridgeTool() tool {
	return tool{
		name:        "bridge_data",
		description: "Set a variable of a session to a JSON value, or to the value of a variable of another session: Python to Node and back.",
		more:        "At most 512 KiB of JSON. R takes part if its package jsonlite is there. The value does not pass through the conversation if from_session_id names a session.",
		in: arguments(sessionField, field("key", "string", "Name of the variable.").must(), property{name: "data", schema: map[string]any{"description": "Any JSON value."}},
			field("from_session_id", "string", "Other session, instead of data."), field("from_key", "string", "Variable there. Default: key.")),
		out: results(field("success", "boolean", "").must(), field("session_id", "string", "").must(), field("key", "string", "").must(),
			field("bytes", "integer", "of the value's JSON").must(), warningField),
		hints:  hints{destructive: true, idempotent: true},
		handle: (*call).bridgeData,
	}
}

func (c *call) bridgeData() (*sdk.CallToolResult, error) {
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	b := code.Bridge{Owner: c.owner(), Session: s.ID, From: c.args.text("from_session_id"), FromName: c.args.text("from_key")}
	if b.Name, err = c.args.required("key"); err != nil {
		return nil, err
	}
	value, given := c.args["data"]
	if given == (b.From != "") {
		return nil, errors.New("either data or from_session_id is required")
	}
	if b.From != "" {
		if _, err := c.opts.Code.Session(b.Owner, b.From); err != nil {
			return nil, fmt.Errorf("%w\nhint: %s", err, c.liveSessions())
		}
		b.FromName = cmp.Or(b.FromName, b.Name)
	} else if b.Data, err = json.Marshal(value); err != nil {
		return nil, err
	}
	size, err := c.opts.Code.Bridge(c.ctx, b)
	if err != nil {
		return nil, err
	}
	return answer(fmt.Sprintf("session_id: %s\nkey: %s\nbytes: %d\n", s.ID, b.Name, size), struct {
		Success bool   `json:"success"`
		ID      string `json:"session_id"`
		Key     string `json:"key"`
		Bytes   int    `json:"bytes"`
	}{true, s.ID, b.Name, size}), nil
}
