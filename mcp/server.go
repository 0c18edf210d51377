package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/backend"
)

// Options says what a server offers and allows. Nobody checks its words again.
type Options struct {
	Version string
	Mounts  Mounts
	Images  []string
	Image   string // the default, allowed whatever it is
	// Outputs is where the output directories are, links resolved; empty: no resources.
	Outputs string
	// Mine says whether an output directory, by its name in Outputs, is of a run that came by MCP; nil: all are.
	Mine func(name string) bool
	// Domain decides about a rule that a model wrote for a sandbox of an egress mode. use are the words that are then used;
	// empty: the mode has the rule. nil: every rule is refused.
	Domain   func(mode, words string) (use string, v Verdict, err error)
	Ceilings Ceilings
	Egress   []string // modes; the first is the default of sandbox_create
	// Allowed says whether an image besides Images may be used; nil: none.
	Allowed func(image string) bool
	// Sets are tool sets offered besides the tools that are always there; see [ToolSets].
	Sets []string
	// Heartbeat is the time between two signs of life of a call; 0 means 10 s.
	Heartbeat time.Duration
}

// Server answers MCP clients. One server may serve many connections at once.
type Server struct {
	engine  backend.Engine
	opts    Options
	sdk     *sdk.Server
	outputs outputs
	parked  parked
	asking  chan struct{} // has one of its places: a question that is put

	mu      sync.Mutex
	calls   int                                     // under way, and what follows their answers
	idle    sync.Cond                               // there are none
	resting *time.Timer                             // what comes a while after that: rest
	open    map[string]map[*context.CancelFunc]bool // those under way that are of an HTTP session, by that
}

// A tool is one that a server offers. Its handler gets arguments that were parsed and
// returns a result, or an error whose text is the answer.
type tool struct {
	name        string
	description string
	in, out     map[string]any // out is nil for a tool without structured content
	hints       hints
	handle      func(*call) (*sdk.CallToolResult, error)
}

// hints are a tool's annotations, all four said.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

// call is one call of a tool.
type call struct {
	*Server
	ctx  context.Context
	args args
	req  *sdk.CallToolRequest
	talk *talk  // nil: this is all of it, and whoever is asked is asked meanwhile
	told func() // nil, or to be called once the client has the answer
}

// New makes a server over e.
func New(e backend.Engine, o Options) *Server {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	s := &Server{engine: e, opts: o, asking: make(chan struct{}, askedMost), open: map[string]map[*context.CancelFunc]bool{}}
	s.idle.L = &s.mu
	s.resting = time.AfterFunc(restAfter, rest)
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "demesne", Version: o.Version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}},
		// What is said here is one user's: paths, outputs, how the operator configured it.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	known := map[string]bool{}
	for _, t := range s.tools() {
		s.add(t)
		known[t.name] = true
	}
	s.sdk.AddReceivingMiddleware(refuseUnknown(known), refuseLevel)
	s.addResources()
	s.addPrompts()
	return s
}

const instructions = "Runs shell commands and scripts in sandboxes on this machine. " +
	"sandbox_script is for one command; sandbox_create, sandbox_exec and sandbox_destroy keep a sandbox between commands. " +
	"Inputs are read-only at /in, results belong in /out, which is output_dir on the host."

// tools are those that are offered.
func (s *Server) tools() []tool {
	list := []tool{
		s.script(), s.create(), s.exec(), s.upload(), s.download(), s.destroy(),
		s.status(), s.wait(), s.cancel(),
	}
	for _, set := range toolSets {
		if slices.Contains(s.opts.Sets, set.name) {
			list = append(list, set.tools(s)...)
		}
	}
	return list
}

// toolSets are those that have to be asked for: each tool costs a model some attention.
var toolSets = []struct {
	name  string
	tools func(*Server) []tool
}{
	{"files", func(s *Server) []tool {
		return []tool{s.read(), s.write(), s.edit(), s.list(), s.glob(), s.grep()}
	}},
}

// ToolSets are the names of the tool sets that [Options] may ask for.
func ToolSets() (names []string) {
	for _, set := range toolSets {
		names = append(names, set.name)
	}
	return names
}

func (s *Server) add(t tool) {
	spec := &sdk.Tool{
		Name: t.name, Description: t.description, InputSchema: t.in,
		Annotations: &sdk.ToolAnnotations{
			ReadOnlyHint: t.hints.readOnly, DestructiveHint: &t.hints.destructive,
			IdempotentHint: t.hints.idempotent, OpenWorldHint: &t.hints.openWorld,
		},
	}
	if t.out != nil {
		spec.OutputSchema = t.out
	}
	s.sdk.AddTool(spec, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, end := s.begin(ctx, req.Session.ID())
		defer end()
		return s.serve(ctx, t, req), nil
	})
}

// serve answers a call, or one round of it.
func (s *Server) serve(ctx context.Context, t tool, req *sdk.CallToolRequest) *sdk.CallToolResult {
	if req.Params.RequestState != "" {
		return s.resume(ctx, t, req)
	}
	a, err := parseArgs(req.Params.Arguments)
	if err != nil {
		return failure(err)
	}
	c := &call{Server: s, ctx: ctx, args: a, req: req}
	if c.req.ProtocolVersion() >= severalRounds && c.canAsk() {
		return c.begin(t)
	}
	r := c.run(t)
	c.answering(ctx)
	return r
}

// run has t's handler do it.
func (c *call) run(t tool) *sdk.CallToolResult {
	r, err := t.handle(c)
	if err != nil {
		return failure(err)
	}
	return r
}

// refuseUnknown words the one error of a tool that is a JSON-RPC error.
func refuseUnknown(known map[string]bool) sdk.Middleware {
	return func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if p, ok := req.GetParams().(*sdk.CallToolParamsRaw); ok && !known[p.Name] {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("tool '%s' not found: tool not found", p.Name)}
			}
			return next(ctx, method, req)
		}
	}
}

// levels are those that a client may ask messages from.
var levels = []sdk.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// refuseLevel refuses a level of logging that there is not.
func refuseLevel(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if p, ok := req.GetParams().(*sdk.SetLoggingLevelParams); ok && !slices.Contains(levels, p.Level) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("level %q is not one", p.Level)}
		}
		return next(ctx, method, req)
	}
}

// failure is an error as a result: the model reads it and can do better.
func failure(err error) *sdk.CallToolResult {
	text := err.Error()
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		text += "\nhint: " + hinted.Hint()
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: strings.ToValidUTF8(text, "\uFFFD")}}}
}

// answer is a result in both forms.
func answer(text string, structured any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: structured}
}
