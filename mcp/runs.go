package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"demesne/session"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tool set "runs" has the tools of mcp-sandboxd, with their names, arguments, results and errors. A run goes on
// without its call, and its events, state and files are read over HTTP. So only the HTTP server offers the set.

// ErrArguments reports arguments of a tool of the set "runs" that cannot be read.
var ErrArguments = errors.New("invalid_arguments")

// Runs executes lists of commands in sandboxes that callers name, for the tool set "runs". The arguments are the tools',
// unchecked. sandbox describes the sandbox, if one must be made. Its methods are safe for concurrent use.
type Runs interface {
	// Run starts a run, and waits for its end if the arguments say so. The run does not end with ctx.
	Run(ctx context.Context, arguments json.RawMessage, sandbox session.Request) (*StartedRun, error)
	// Restart replaces a sandbox by a new one.
	Restart(ctx context.Context, arguments json.RawMessage, sandbox session.Request) (*RunSandbox, error)
	// Delete removes a sandbox. It fails if the sandbox does not exist.
	Delete(ctx context.Context, arguments json.RawMessage) (identifier string, err error)
}

// StartedRun is a run. Final is the run itself once it has ended; nil before.
type StartedRun struct {
	Tool        string   `json:"tool"`
	ID          string   `json:"run_id"`
	EventsURL   string   `json:"events_url"` // path on the server
	StatusURL   string   `json:"status_url"`
	Identifier  string   `json:"identifier"`
	SandboxName string   `json:"sandbox_name"`
	Final       any      `json:"final"`
	Warnings    []string `json:"warnings,omitempty"` // what the operator's bounds reduced
}

// RunSandbox describes the sandbox of an identifier.
type RunSandbox struct {
	Identifier  string `json:"identifier"`
	ContainerID string `json:"container_id"`
	Name        string `json:"name"`
	Created     string `json:"created_at"` // RFC 3339
	Expires     string `json:"expires_at"`
	Image       string `json:"image"`
}

const runsInstructions = " run_sandbox runs a list of commands in the sandbox of an identifier, and returns at once."

// runTools returns the tools of the set.
func (s *Server) runTools() []tool {
	if s.opts.Runs == nil {
		return nil
	}
	return []tool{s.runSandboxTool(), deleteSandboxTool(), restartSandboxTool()}
}

var (
	identifierField = field("identifier", "string", "Names the sandbox: 1 to 36 letters, digits, _ and -.").with("minLength", 1).with("maxLength", 36).must()
	variablesField  = map[string]any{"anyOf": []any{
		map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}},
		map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
	}}
	runTTLField = field("ttl_seconds", "integer", "Lifetime of a new sandbox after its last command. Default 3600, at most 604800.").with("minimum", 1)
)

// anyVariables is an argument with variables: an object, or a list of NAME=VALUE.
func anyVariables(name string) property { return property{name: name, schema: variablesField} }

func optionsField(fields ...property) property {
	return property{name: "options", schema: arguments(fields...)}
}

func (s *Server) runSandboxTool() tool {
	command := arguments(
		field("shell", "string", "for bash -lc"), listOf("argv", "instead of shell"), field("cwd", "string", ""), anyVariables("env"),
		field("timeout_ms", "integer", "Default 120000.").with("minimum", 1), field("allow_failure", "boolean", ""),
	)
	return tool{
		name: "run_sandbox", wire: runFailed,
		description: "Run commands in the sandbox of an identifier, which is made if necessary and keeps its files. It returns a run_id at once; " +
			"await_completion waits for the result. Files in /artifacts can be downloaded after the run.",
		more: "The paths in the result are this server's: status_url has the run as JSON, events_url its events (SSE). DELETE status_url cancels it.",
		in: arguments(identifierField, field("commands", "array", "Each has shell or argv.").with("minItems", 1).with("items", command).must(), optionsField(
			runTTLField, field("default_cwd", "string", "Default /workspace."), anyVariables("default_env"),
			field("as_user", "string", "root: uid 0 of the sandbox. sandbox: uid 1000. Default the image's user.").with("enum", []string{"sandbox", "root"}),
			field("continue_on_error", "boolean", ""), field("lock_sandbox", "boolean", "Wait for earlier runs with this option in the sandbox."),
			field("await_completion", "boolean", "").with("default", false), field("await_timeout_ms", "integer", "").with("minimum", 1).with("default", 30000),
			s.opts.imageField().described("Of a new sandbox, as in sandbox_script. Default "+s.opts.Image+"."),
			s.opts.egressField("package-managers").described("Network of a new sandbox. Default "+s.opts.egressDefault("package-managers")+"."), limitsAlso,
		)),
		out: results(field("tool", "string", "").must(), field("run_id", "string", "").must(), field("events_url", "string", "").must(), field("status_url", "string", "").must(),
			field("identifier", "string", "").must(), field("sandbox_name", "string", "").must(),
			property{name: "final", schema: map[string]any{"type": []string{"object", "null"}, "description": "the run, if it has ended"}},
			listOf("warnings", "what the operator's bounds reduced")),
		hints: hints{openWorld: true}, textual: true,
		handle: (*call).startRun,
	}
}

func deleteSandboxTool() tool {
	return tool{
		name: "delete_sandbox", wire: deleteFailed,
		description: "Delete the sandbox of an identifier, with its files. Its runs and their artifacts stay.",
		in:          arguments(identifierField),
		out:         results(field("tool", "string", "").must(), field("deleted", "boolean", "").must(), field("identifier", "string", "").must()),
		hints:       hints{destructive: true, idempotent: true}, textual: true,
		handle: func(c *call) (*sdk.CallToolResult, error) {
			identifier, err := c.opts.Runs.Delete(c.ctx, c.req.Params.Arguments)
			if err != nil {
				return nil, err
			}
			return wired("delete_sandbox", map[string]any{"tool": "delete_sandbox", "deleted": true, "identifier": identifier})
		},
	}
}

func restartSandboxTool() tool {
	return tool{
		name: "restart_sandbox", wire: restartFailed,
		description: "Replace the sandbox of an identifier by a new one without files.",
		in:          arguments(identifierField, optionsField(runTTLField)),
		out:         results(field("tool", "string", "").must(), property{name: "sandbox", schema: map[string]any{"type": "object"}}),
		hints:       hints{destructive: true, openWorld: true}, textual: true,
		handle: func(c *call) (*sdk.CallToolResult, error) {
			r, err := newRunSandbox(c)
			if err != nil {
				return nil, err
			}
			sb, err := c.opts.Runs.Restart(c.ctx, c.req.Params.Arguments, r)
			if err != nil {
				return nil, err
			}
			return wired("restart_sandbox", map[string]any{"tool": "restart_sandbox", "sandbox": sb})
		},
	}
}

func (c *call) startRun() (*sdk.CallToolResult, error) {
	r, err := newRunSandbox(c)
	if err != nil {
		return nil, err
	}
	_, stop := c.watch()
	defer stop()
	run, err := c.opts.Runs.Run(c.ctx, c.req.Params.Arguments, r)
	if err != nil {
		return nil, err
	}
	run.Tool = "run_sandbox"
	return wired(fmt.Sprintf("run_sandbox: started run %s; events_url=%s; status_url=%s", run.ID, run.EventsURL, run.StatusURL), run)
}

// newRunSandbox reads the options of a new sandbox, within the operator's bounds.
func newRunSandbox(c *call) (session.Request, error) {
	o, _ := c.args["options"].(map[string]any)
	inner := *c
	inner.args = args{}
	for _, name := range []string{"image", "egress", "limits"} {
		if v := o[name]; v != nil {
			inner.args[name] = v
		}
	}
	r, err := inner.sandboxRequest("package-managers")
	if err != nil {
		return r, fmt.Errorf("%w: options: %w", ErrArguments, err)
	}
	return r, nil
}

// wired returns a result as mcp-sandboxd does: a summary, and the result as JSON.
func wired(summary string, result any) (*sdk.CallToolResult, error) {
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return nil, err
	}
	return answer(summary+"\n"+string(text), result), nil
}

// Messages of errors of the set.
const runFailed, deleteFailed, restartFailed = "run_failed", "delete_failed", "restart_failed"

// codeFailed is the JSON-RPC code of a call that failed.
const codeFailed = -32000

// wireError returns an error as mcp-sandboxd does: as one of JSON-RPC.
func wireError(message string, err error) error {
	text := err.Error()
	data, _ := json.Marshal(map[string]string{"error": text})
	if errors.Is(err, ErrArguments) { // its text begins with the message
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text, Data: data}
	}
	return &jsonrpc.Error{Code: codeFailed, Message: message + ": " + text, Data: data}
}

// serveWire answers a call whose errors are JSON-RPC errors.
func serveWire(ctx context.Context, s *Server, t tool, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	a, err := parseArgs(req.Params.Arguments)
	if err != nil {
		return nil, wireError("", fmt.Errorf("%w: %w", ErrArguments, err))
	}
	r, err := t.handle(&call{Server: s, ctx: ctx, args: a, req: req})
	if err != nil {
		return nil, wireError(t.wire, err)
	}
	return r, nil
}

// Output is a file that a run left.
type Output struct {
	Path string // below the run's directory; valid UTF-8
	Size int64
	MIME string // by the name
}

// maxOutputs bounds the outputs of a run in a list.
const maxOutputs = 1000

// Outputs lists the files that a run left in /out, but not its logs. The server's callers must own the run. It fails with
// [os.ErrNotExist].
func (s *Server) Outputs(run string) (list []Output, err error) {
	dir, err := s.outputDir(run)
	if err != nil {
		return nil, err
	}
	for _, o := range s.outputs.files(dir, maxOutputs) {
		list = append(list, Output{o.Name, o.Size, o.MIME})
	}
	return list, nil
}

// OpenOutput opens a file that a run left. It follows no link, and fails with [os.ErrNotExist] for anything but a file.
func (s *Server) OpenOutput(run, name string) (*os.File, error) {
	dir, err := s.outputDir(run)
	if err != nil {
		return nil, err
	}
	if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
		return nil, os.ErrNotExist
	}
	f, err := s.outputs.open(path.Join(dir, name))
	if errors.Is(err, errNoOutput) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, os.ErrNotExist
	}
	return f, nil
}

// outputDir returns the directory with the files of a run, relative to the root.
func (s *Server) outputDir(run string) (string, error) {
	if run == "" || run != path.Base(run) || strings.HasPrefix(run, ".") || !s.outputs.has(run) {
		return "", os.ErrNotExist
	}
	return s.outputs.outOf(run), nil
}
