package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"demesne/kernels/code"
	"demesne/runner"
	"demesne/session"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tool set "code" keeps kernels in sandboxes: interpreters whose variables outlive a call. The texts follow the other
// tools. Models know the names and fields from other systems: see the reference.

// codeTools returns the tools of the set.
func (s *Server) codeTools() []tool {
	return []tool{
		s.createSessionTool(), s.executeCodeTool(), terminalTool(), s.importTool(), exportTool(),
		installTool(), s.validateTool(), stopSessionTool(), s.runtimesTool(), stateTool(),
		kernelTool(), bridgeTool(),
	}
}

// codeInstructions are the further instructions of a server with this set.
const codeInstructions = " create_session and execute_code keep variables of a program between calls; " +
	"execute_code with a language and no session_id runs code once."

var (
	sessionField = field("session_id", "string", "From create_session.").must()
	hintField    = field("hint", "string", "what to do next")
)

// Times of an execution, in seconds.
const (
	codeTime    = 30
	maxCodeTime = 300
)

func codeTimeField() property {
	return field("timeout", "number", "Seconds, 1 to 300. Then the code is interrupted; the session keeps its variables.").with("default", codeTime)
}

// codeTimeout reads the time limit of an execution. It is strict, as for the other limits: a number of milliseconds would
// hold the call for hours.
func (c *call) codeTimeout(preset, most float64) (time.Duration, error) {
	name := "timeout"
	if c.args[name] == nil && c.args["timeout_seconds"] != nil { // as in sandbox_exec
		name = "timeout_seconds"
	}
	n, ok := c.args.seconds(name)
	switch {
	case c.args[name] == nil:
		n = min(preset, c.opts.Policy.Time(runner.Longest).Seconds())
	case !ok || !(n >= 1 && n <= most):
		return 0, fmt.Errorf("%s must be a number of seconds, from 1 to %.0f", name, most)
	}
	return timeout(c.opts.Policy, n)
}

// hiddenSeconds is the name of the time limit in the other tools. It is understood here too.
var hiddenSeconds = property{name: "timeout_seconds", schema: map[string]any{"type": "number"}, hidden: true}

// sandboxFields are the arguments of a sandbox, for the tools that make one.
func (s *Server) sandboxFields() []property {
	return []property{
		property{name: "dependencies", schema: map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}}.
			described(`Packages to install: {"numpy": "", "pandas": "2.2.3"}; "" means the newest.`).also("A list of texts such as pandas==2.2.3 is understood too."),
		s.opts.imageField().described("As in sandbox_script. Default " + s.opts.Image + "."),
		s.opts.egressField("none").described("Network. Default none; package-managers if there are dependencies."),
		alsoFilesField(), dirsField(), limitsAlso, domainsField.plain(), askField.plain(), s.opts.secretsField().plain(),
		field("kernel", "string", "Kernelspec of the image, from list_runtimes."),
	}
}

// hostless are arguments of sandbox_create that a session does not have.
var hostless = []string{"name", "key", "replace", "background"}

// codeRequest reads the arguments of sandboxFields and of every call.
func (c *call) codeRequest() (r code.Request, err error) {
	for _, name := range hostless {
		delete(c.args, name)
	}
	r.Language, r.Kernel, r.Owner = c.args.text("language"), c.args.text("kernel"), c.owner()
	if r.Dependencies, err = dependencies(c.args["dependencies"]); err != nil {
		return r, err
	}
	fallback := "none"
	if len(r.Dependencies) > 0 && slices.Contains(c.opts.Egress, "package-managers") {
		fallback = "package-managers"
	}
	r.Request, err = c.sandboxRequest(fallback)
	return r, err
}

// dependencies reads an object of versions by name, or a list of texts. The backend checks names and versions.
func dependencies(v any) (list []string, err error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }), nil
	case []any:
		return args{"dependencies": v}.texts("dependencies")
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			version, isText := v[name].(string)
			if !isText && v[name] != nil {
				return nil, fmt.Errorf("dependencies.%s: the version must be a text, or \"\" for the newest", clipped(name))
			}
			if version = strings.TrimPrefix(version, "=="); version != "" && version != "latest" && version != "*" {
				name += "==" + version
			}
			list = append(list, name)
		}
		return list, nil
	}
	return nil, errors.New("dependencies must be an object of versions by name")
}

// owner returns the owner of the sessions of a call: its connection over HTTP. Other servers have one client.
func (c *call) owner() string { return c.req.Session.ID() }

// sessionOf returns the session that session_id names. Its error lists the live sessions, for a model that lost the id.
func (c *call) sessionOf() (*code.SessionInfo, error) {
	id, err := c.args.required("session_id")
	if err != nil {
		return nil, fmt.Errorf("%w\nhint: %s", err, c.liveSessions())
	}
	found, err := c.opts.Code.Session(c.owner(), id)
	if err != nil {
		return nil, fmt.Errorf("%w\nhint: %s", err, c.liveSessions())
	}
	return found, nil
}

// liveSessions names the sessions of the caller, in a hint.
func (c *call) liveSessions() string {
	var names []string
	for _, s := range c.opts.Code.Sessions(c.owner()) {
		names = append(names, fmt.Sprintf("%s (%s)", s.ID, s.Language))
	}
	if len(names) == 0 {
		return "no session is live; create_session makes one"
	}
	return "live sessions: " + strings.Join(names, ", ")
}

// codeSession is the result of create_session.
type codeSession struct {
	Success      bool     `json:"success"`
	ID           string   `json:"session_id"`
	Language     string   `json:"language"`
	Runtime      string   `json:"runtime"`
	Status       string   `json:"status"`
	Dependencies []string `json:"dependencies,omitempty"`
	Stderr       string   `json:"stderr,omitempty"`
	Hint         string   `json:"hint,omitempty"`
	OutputDir    string   `json:"output_dir"`
	Image        string   `json:"image,omitempty"`
	Egress       string   `json:"egress,omitempty"`
}

func (s *Server) createSessionTool() tool {
	language := field("language", "string", "").with("default", "python")
	if len(s.opts.Languages) > 0 {
		language = language.described("Such as " + strings.Join(s.opts.Languages, ", ") + "; list_runtimes says what an image has.")
	}
	return tool{
		name: "create_session",
		description: "Start an interpreter in a fresh sandbox for execute_code. Variables, files and background processes stay " +
			"until stop_session. Its working directory is /out, which is output_dir on the host.",
		more: "A session ends with the server at the latest. A Jupyter kernel of the image is used if there is one, else a kernel of demesne's.",
		in:   arguments(append([]property{language}, s.sandboxFields()...)...),
		out: results(field("success", "boolean", "").must(), field("session_id", "string", "").must(), field("language", "string", "").must(),
			field("runtime", "string", "the kernel"), field("status", "string", "ready").must(),
			listOf("dependencies", "that were asked for").minor(), field("stderr", "string", "why some could not be installed; the session exists anyway"), hintField.minor(),
			field("output_dir", "string", "/out, on the host").must(), field("image", "string", "").minor(), field("egress", "string", "").minor(), inputsField, warningField),
		hints:  hints{openWorld: true},
		handle: (*call).createSession,
	}
}

func (c *call) createSession() (*sdk.CallToolResult, error) {
	r, err := c.codeRequest()
	if err != nil {
		return nil, err
	}
	if r.Language == "" {
		r.Language = "python"
	}
	watch, stop := c.watch()
	defer stop()
	made, err := c.opts.Code.StartSession(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	c.endWith()
	out := sessionResult(*made)
	out.Dependencies = r.Dependencies
	text := fmt.Sprintf("session_id: %s\nlanguage: %s\nruntime: %s\noutput_dir: %s", out.ID, out.Language, out.Runtime, out.OutputDir)
	if made.InstallError != "" {
		out.Stderr, _ = endOf(session.Tail{Text: made.InstallError, Bytes: int64(len(made.InstallError))}, 4096, "")
		if out.Hint = installHint(made); out.Hint != "" {
			text += "\nhint: " + out.Hint
		}
		text += "\n---stderr---\n" + out.Stderr
	}
	return answer(text, out), nil
}

// installHint says how dependencies can be installed, if the session has no network.
func installHint(s *code.SessionInfo) string {
	if s.Egress != "none" {
		return ""
	}
	return "this session has no network: create_session with egress=package-managers"
}

func sessionResult(s code.SessionInfo) codeSession {
	return codeSession{
		Success: true, ID: s.ID, Language: s.Language, Runtime: s.Kernel, Status: "ready",
		OutputDir: s.OutputDir, Image: s.Image, Egress: s.Egress,
	}
}

// endWith ends the sessions of a call's HTTP connection when the connection ends: no other one finds them.
func (c *call) endWith() {
	owner := c.owner()
	if owner == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners[owner] {
		return
	}
	c.owners[owner] = true
	connection, s := c.req.Session, c.Server
	go func() {
		connection.Wait()
		s.mu.Lock()
		delete(s.owners, owner)
		s.mu.Unlock()
		for _, left := range s.opts.Code.Sessions(owner) {
			s.opts.Code.StopSession(context.Background(), owner, left.ID)
		}
	}()
}

func stopSessionTool() tool {
	return tool{
		name:        "stop_session",
		description: "End a session: its variables, processes and files. output_dir stays unless it is empty.",
		in:          arguments(sessionField),
		out:         results(field("success", "boolean", "").must(), field("session_id", "string", "").must(), field("output_dir", "string", ""), warningField),
		hints:       hints{destructive: true},
		handle: func(c *call) (*sdk.CallToolResult, error) {
			s, err := c.sessionOf()
			if err == nil {
				err = c.opts.Code.StopSession(c.ctx, c.owner(), s.ID)
			}
			if err != nil {
				return nil, err
			}
			return answer("stopped: "+s.ID+"\noutput_dir: "+s.OutputDir, struct {
				Success   bool   `json:"success"`
				ID        string `json:"session_id"`
				OutputDir string `json:"output_dir,omitempty"`
			}{true, s.ID, s.OutputDir}), nil
		},
	}
}
