package mcp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"demesne/kernels/code"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// heldVariable is a variable of a kernel.
type heldVariable struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value,omitempty"`
}

// codeState is the result of inspect_state.
type codeState struct {
	codeSession
	Age       int64             `json:"age_seconds"`
	Idle      int64             `json:"idle_seconds"`
	Variables []heldVariable    `json:"variables"`
	More      int               `json:"more_variables,omitempty"`
	Unread    string            `json:"variables_error,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Processes []string          `json:"processes,omitempty"`
	Memory    int64             `json:"memory_bytes,omitempty"`
}

// liveSession is one session of a list.
type liveSession struct {
	codeSession
	Age  int64 `json:"age_seconds"`
	Idle int64 `json:"idle_seconds"`
}

var sessionFields = []property{
	field("session_id", "string", ""), field("language", "string", ""), field("runtime", "string", "the kernel"), field("status", "string", "idle or busy"),
	field("age_seconds", "integer", ""), field("idle_seconds", "integer", "since the last call ended"), field("output_dir", "string", "/out, on the host"),
	field("image", "string", ""), field("egress", "string", ""), field("success", "boolean", ""),
}

func stateTool() tool {
	return tool{
		name:        "inspect_state",
		description: "Show what a session holds: variables, environment (secrets masked), processes, memory. Without session_id: list your sessions.",
		in:          arguments(field("session_id", "string", "From create_session.")),
		out: results(append(slices.Clone(sessionFields),
			arrayOf("variables", "of the kernel, at most 200", field("name", "string", "").must(), field("type", "string", "").must(), field("value", "string", "its beginning")),
			field("more_variables", "integer", "number of further ones").minor(), field("variables_error", "string", "why variables could not be read").minor(),
			tableOf("env", "of the kernel"), listOf("processes", "their command lines"), field("memory_bytes", "integer", "of all processes"),
			arrayOf("sessions", "the oldest first", sessionFields...), warningField)...),
		hints:  hints{readOnly: true, idempotent: true},
		handle: (*call).inspectState,
	}
}

func (c *call) inspectState() (*sdk.CallToolResult, error) {
	if c.args.text("session_id") == "" {
		return c.listSessions(), nil
	}
	s, err := c.sessionOf()
	if err != nil {
		return nil, err
	}
	_, stop := c.watch()
	defer stop()
	got, err := c.opts.Code.Inspect(c.ctx, c.owner(), s.ID)
	if err != nil {
		return nil, err
	}
	live := liveSessionOf(got.SessionInfo)
	out := codeState{
		codeSession: live.codeSession, Age: live.Age, Idle: live.Idle, Variables: []heldVariable{}, More: got.More, Unread: got.Unread,
		Env: got.Env, Processes: got.Processes, Memory: got.Memory,
	}
	for _, v := range got.Variables {
		out.Variables = append(out.Variables, heldVariable(v))
	}
	return answer(live.text()+out.text(), out), nil
}

func liveSessionOf(s code.SessionInfo) liveSession {
	l := liveSession{codeSession: sessionResult(s), Age: int64(time.Since(s.Created).Seconds())}
	if l.Status = "busy"; !s.Used.IsZero() {
		l.Status, l.Idle = "idle", int64(time.Since(s.Used).Seconds())
	}
	return l
}

func (l liveSession) text() string {
	return fmt.Sprintf("session_id: %s language: %s status: %s age_seconds: %d idle_seconds: %d output_dir: %s\n", l.ID, l.Language, l.Status, l.Age, l.Idle, plainName(l.OutputDir))
}

func (s codeState) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memory_bytes: %d\n", s.Memory)
	for _, v := range s.Variables {
		fmt.Fprintf(&b, "variable: %s %s = %s\n", v.Name, v.Type, oneLine(v.Value))
	}
	if s.More > 0 {
		fmt.Fprintf(&b, "and %d more variables\n", s.More)
	}
	if s.Unread != "" {
		fmt.Fprintf(&b, "variables: %s\n", s.Unread)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		fmt.Fprintf(&b, "env: %s=%s\n", name, oneLine(s.Env[name]))
	}
	for _, p := range s.Processes {
		fmt.Fprintf(&b, "process: %s\n", oneLine(p))
	}
	return b.String()
}

func (c *call) listSessions() *sdk.CallToolResult {
	list := struct {
		Sessions []liveSession `json:"sessions"`
	}{[]liveSession{}}
	text := ""
	for _, s := range c.opts.Code.Sessions(c.owner()) {
		l := liveSessionOf(s)
		list.Sessions = append(list.Sessions, l)
		text += l.text()
	}
	if text == "" {
		text = "no sessions\n"
	}
	return answer(text, list)
}

// codeRuntime is a language of list_runtimes.
type codeRuntime struct {
	Language string   `json:"language"`
	Program  string   `json:"program,omitempty"`
	Version  string   `json:"version,omitempty"`
	Kernels  []string `json:"kernels,omitempty"`
	Session  bool     `json:"session"`
}

func (s *Server) runtimesTool() tool {
	return tool{
		name:        "list_runtimes",
		description: "List the languages that execute_code and create_session have on an image, with versions and Jupyter kernels.",
		in:          arguments(s.opts.imageField().described("As in sandbox_script. Default " + s.opts.Image + ".")),
		out: results(field("image", "string", "").must(), arrayOf("runtimes", "", field("language", "string", "").must(), field("program", "string", "the interpreter"), field("version", "string", ""),
			listOf("kernels", "names for the argument kernel of create_session"), field("session", "boolean", "create_session accepts the language; else it runs once").must()).must(), warningField),
		hints:  hints{readOnly: true, idempotent: true, openWorld: true},
		handle: (*call).listRuntimes,
	}
}

func (c *call) listRuntimes() (*sdk.CallToolResult, error) {
	r, err := c.codeRequest()
	if err != nil {
		return nil, err
	}
	watch, stop := c.watch()
	defer stop()
	all, err := c.opts.Code.Runtimes(c.ctx, r, watch)
	if err != nil {
		return nil, err
	}
	out := struct {
		Image    string        `json:"image"`
		Runtimes []codeRuntime `json:"runtimes"`
	}{r.Create.Image.String(), []codeRuntime{}}
	text := ""
	for _, one := range all {
		out.Runtimes = append(out.Runtimes, codeRuntime{one.Language, one.Program, one.Version, one.Kernels, len(one.Kernels) > 0})
		text += fmt.Sprintf("%s %s session: %t", one.Language, oneLine(one.Version), len(one.Kernels) > 0)
		if len(one.Kernels) > 0 {
			text += " kernels: " + strings.Join(one.Kernels, ", ")
		}
		text += "\n"
	}
	if text == "" {
		text = "no languages\n"
	}
	return answer(text, out), nil
}
