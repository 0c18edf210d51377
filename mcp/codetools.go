package mcp

import (
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

func (s *Server) validateTool() tool {
	return tool{
		name:        "validate_code",
		description: "Check the syntax of code with the language's own parser, in a sandbox. The code is not executed.",
		in: arguments(field("code", "string", "").must(), field("language", "string", "").also("Needed without session_id."),
			field("session_id", "string", "Check for a session: its language and image."),
			s.opts.imageField().described("As in sandbox_script. Default "+s.opts.Image+".")),
		out: results(field("valid", "boolean", "").must(), field("language", "string", ""), arrayOf("errors", "that the parser found",
			field("line", "integer", "from 1").must(), field("column", "integer", "from 1").must(), field("message", "string", "").must()).must(), warningField),
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
	r.Code = text
	watch, stop := c.watch()
	defer stop()
	d, err := c.opts.Code.Check(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	type problem struct {
		Line    int    `json:"line"` // 0: not known
		Column  int    `json:"column"`
		Message string `json:"message"`
	}
	out := struct {
		Valid    bool      `json:"valid"`
		Language string    `json:"language"`
		Errors   []problem `json:"errors"`
	}{len(d.Problems) == 0, r.Language, []problem{}}
	text = fmt.Sprintf("valid: %t\n", out.Valid)
	for _, p := range d.Problems {
		out.Errors = append(out.Errors, problem(p))
		text += fmt.Sprintf("line %d, column %d: %s\n", p.Line, p.Column, p.Message)
	}
	return answer(text, out), nil
}
