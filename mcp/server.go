package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/mcp/browser"
	"demesne/server/hostcmd"
	"demesne/session"
)

// Options configures a server. New does not validate it.
type Options struct {
	Version string
	Mounts  Mounts
	Images  []string // names and patterns that models see
	Image   string   // the default
	// Outputs is where the output directories are, links resolved; empty: no resources.
	Outputs string
	// Mine reports whether the output directory of that name belongs to a run over MCP; nil: all do.
	Mine func(name string) bool
	// Hidden means that callers do not learn paths of the host: those below Outputs are shown as URIs of resources.
	Hidden bool
	// Policy decides about images, limits, times, budgets and rules of the network.
	Policy Policy
	Egress []string // modes that are shown; the first is the default of sandbox_create
	// Secrets are the credentials that models may use.
	Secrets []SecretName
	// Sets are the tool sets offered in addition to the standard tools; see [ToolSets].
	Sets []string
	// Models are the names that sandbox_agent accepts here, the default first. Model checks a name, or "" for the
	// default, and explains a refusal; image is the name of the image that has the program, if the call has one.
	Models []string
	Model  func(name, tool, image string) error
	// Code keeps the sessions of the set "code". Languages are the names of the languages that its tools describe.
	Code      Code
	Languages []string
	// Build builds an image of a Containerfile, which is r.Run.Stdin. r.Create.Spec has its inputs and limits. log is the end of what
	// the build said, which comes from sandboxes. Nil: sandbox_build is not offered.
	Build func(ctx context.Context, r session.Request, w session.Callbacks) (image, digest string, log session.Tail, err error)
	// Browse calls a tool of the browser in the sandbox of r's key, for the set "browser". It makes what is missing. An error
	// of the page is a result. The result comes from the sandbox and is untrusted. Nil: the set is empty.
	Browse func(ctx context.Context, r session.Request, tool string, args map[string]any, w session.Callbacks) (*browser.Result, error)
	// Web reads the web for the set "web"; nil: the set has no tools.
	Web Web
	// Runs executes the runs of the set "runs"; nil: the set is not offered.
	Runs Runs
	// Host performs the requests of the set "host", for callers of Namespace. Nil: they are refused.
	Host      *hostcmd.Guard
	Namespace string
	// Research is the operator's word about sandbox_research. A nested server whose word is off does not offer it.
	Research Research
	// Nested makes the server that an agent's own sandbox reaches: nine tools with results in text, whose callers name
	// what they start. Each agent has a Server of its own, whose Backend knows the agent.
	Nested bool
	// Texts change the descriptions that models see, by the names of tools.
	Texts map[string]ToolText
	// Heartbeat is the interval between two progress messages of a call; 0 means 10 s.
	Heartbeat time.Duration
}

// ToolText is an operator's text about a tool: in place of its description, after it, or both.
type ToolText struct{ Override, Append string }

// apply returns a description with the operator's text.
func (t ToolText) apply(description string) string {
	if t.Override != "" {
		description = t.Override
	}
	if t.Append != "" {
		description = strings.TrimRight(description, " \n") + " " + t.Append
	}
	return description
}

// Server answers MCP clients. It serves any number of connections concurrently.
type Server struct {
	engine  Service
	opts    Options
	sdk     *sdk.Server
	known   map[string]bool // names of tools
	outputs outputs
	parked  parked
	asking  chan struct{} // semaphore: one element for each question that is being asked

	mu       sync.Mutex
	calls    int                                     // in flight, including the work after an answer
	idle     sync.Cond                               // signalled when calls is 0
	resting  *time.Timer                             // runs rest after a while without calls
	open     map[string]map[*context.CancelFunc]bool // cancel functions of calls in flight, by HTTP session
	attached map[string]*presence                    // by HTTP session
	owners   map[string]bool                         // HTTP sessions at whose end code sessions end
}

// A tool is a tool of the server. Its handler reads the parsed arguments and returns a result. An error becomes a
// result with the error's text.
type tool struct {
	name        string
	description string
	more        string         // further sentences, for the reference
	in, out     map[string]any // out is nil for a tool without structured content
	closed      bool           // a result has only the members of out, as in the original demesne
	textual     bool           // clients do not get out: the tool had only a text once, or a model does not need it
	hints       hints
	wire        string // if not empty, an error of a call is one of JSON-RPC, with this message: see wireError
	handle      func(*call) (*sdk.CallToolResult, error)
}

// hints are a tool's annotations; all four are always sent.
type hints struct{ readOnly, destructive, idempotent, openWorld bool }

// annotations leaves out a hint that is the protocol's default, or has no meaning for a tool that only reads.
func (h hints) annotations() *sdk.ToolAnnotations {
	a := &sdk.ToolAnnotations{ReadOnlyHint: h.readOnly, IdempotentHint: h.idempotent}
	if !h.destructive && !h.readOnly {
		a.DestructiveHint = &h.destructive
	}
	if !h.openWorld {
		a.OpenWorldHint = &h.openWorld
	}
	return a
}

// call is one call of a tool.
type call struct {
	*Server
	ctx  context.Context
	args args
	req  *sdk.CallToolRequest
	talk *talk  // nil: the call has one round, and questions are asked during it
	told func() // if not nil, called once the client has the answer

	inputs []string // a line for each input, if the server chose the name of one
}

// New returns a server that uses e.
func New(e Service, o Options) *Server {
	if o.Heartbeat <= 0 {
		o.Heartbeat = 10 * time.Second
	}
	s := &Server{engine: e, opts: o, asking: make(chan struct{}, maxAsked), open: map[string]map[*context.CancelFunc]bool{}, attached: map[string]*presence{}, owners: map[string]bool{}}
	if o.Hidden && o.Outputs != "" {
		s.opts.Mounts.hide()
	}
	s.idle.L = &s.mu
	s.resting = time.AfterFunc(restAfter, rest)
	s.sdk = sdk.NewServer(&sdk.Implementation{Name: "demesne", Version: o.Version}, &sdk.ServerOptions{
		Instructions: o.instructions(),
		Capabilities: o.capabilities(),
		// Results contain one user's data: paths, outputs and the operator's configuration.
		SetCacheable: func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	s.known = map[string]bool{}
	for _, t := range s.tools() {
		s.add(t)
		s.known[t.name] = true
	}
	s.sdk.AddReceivingMiddleware(refuseUnknown(s.known), refuseLevel, announceTools)
	if o.Hidden && o.Outputs != "" {
		s.sdk.AddReceivingMiddleware(hiding(o.Outputs))
	}
	if !o.Nested {
		s.addResources()
		s.addPrompts()
	}
	return s
}

// Offers reports whether a server has a tool of that name.
func (s *Server) Offers(tool string) bool { return s.known[tool] }

// capabilities offers no notifications about changed lists, because the lists of tools and prompts never change. A
// client then has no reason to keep a subscription open.
func (o Options) capabilities() *sdk.ServerCapabilities {
	c := &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{}, Tools: &sdk.ToolCapabilities{}}
	if !o.Nested {
		c.Prompts = &sdk.PromptCapabilities{}
	}
	if !o.Nested && o.Outputs != "" {
		c.Resources = &sdk.ResourceCapabilities{}
	}
	return c
}

func (o Options) instructions() string {
	if o.Nested {
		return nestedInstructions
	}
	text := instructions
	if o.has(setCode) {
		text += codeInstructions
	}
	if o.has(setRuns) && o.Runs != nil {
		text += runsInstructions
	}
	return text
}

const instructions = "Use demesne to run untrusted code, builds, tests or installs in sandboxes that cannot harm this machine. " +
	"sandbox_script runs one command; sandbox_create, sandbox_exec and sandbox_destroy keep a sandbox between commands. " +
	"Inputs are read-only at /in. Write results to /out, which is output_dir on the host. " +
	"You are root there: sudo is not needed, and not there. apt-get needs an image such as debian; docker does not run. For other tools use another image, " +
	"or ask the user to allow one (DEMESNE_ALLOWED_IMAGES; demesne agent takes --image and --devcontainer). " +
	"sandbox_list finds earlier sandboxes and jobs again."

// tools returns the tools that the server offers.
func (s *Server) tools() []tool {
	if s.opts.Nested {
		return s.nestedTools()
	}
	list := []tool{
		s.script(), s.create(), s.exec(), s.upload(), s.download(), s.destroy(),
		s.agent(), s.research(), s.usageReport(),
		s.status(), s.wait(), cancelTool(), listingTool(),
	}
	for _, set := range toolSets {
		if slices.Contains(s.opts.Sets, set.name) {
			list = append(list, set.tools(s)...)
		}
	}
	return list
}

// Names of the tool sets.
const setFiles, setSandboxes, setCode, setWeb, setBrowser, setComputer, setHost, setRuns = "files", "sandboxes", "code", "web", "browser", "computer", "host", "runs"

// toolSets are the optional tools. They are off by default, because each tool costs a model attention.
var toolSets = []struct {
	name  string
	tools func(*Server) []tool
}{
	{setFiles, func(s *Server) []tool {
		return []tool{s.read(), s.write(), s.edit(), s.list(), s.glob(), s.grep()}
	}},
	{setSandboxes, func(s *Server) []tool { return append([]tool{forkTool(), copyTool(), limitsTool()}, s.buildTools()...) }},
	{setCode, (*Server).codeTools},
	{setWeb, (*Server).webTools},
	{setBrowser, (*Server).browserTools},
	{setComputer, func(*Server) []tool { return []tool{computerTool()} }},
	{setRuns, (*Server).runTools},
	{setHost, (*Server).hostTools},
}

// RunsSet is the name of the tool set that needs [Options].Runs.
const RunsSet = setRuns

// ToolSets returns the names of the tool sets that every server can offer.
func ToolSets() (names []string) {
	for _, set := range toolSets {
		if set.name != RunsSet {
			names = append(names, set.name)
		}
	}
	return names
}

// unencoded is a schema that cannot be encoded, and that AddTool accepts.
var unencoded = jsonschema.Schema{Type: "object", Types: []string{"object"}}

func (s *Server) add(t tool) {
	spec := &sdk.Tool{
		Name: t.name, Description: s.opts.Texts[t.name].apply(t.description), InputSchema: &unencoded,
		Annotations: t.hints.annotations(),
	}
	s.sdk.AddTool(spec, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, end := s.begin(ctx, req.Session.ID())
		defer end()
		if t.wire != "" {
			return serveWire(ctx, s, t, req)
		}
		return s.serve(ctx, t, req), nil
	})
	// The library encodes and parses each schema three times when it gets a tool, which would take half of the memory of a
	// start. It keeps the pointer, and encodes the schema again for each list.
	if spec.InputSchema = t.in; t.out != nil && !t.textual {
		spec.OutputSchema = published(t.out)
	}
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

// run calls the handler of t.
func (c *call) run(t tool) *sdk.CallToolResult {
	warning := unread(t.in, c.args, false)
	r, err := t.handle(c)
	if err != nil { // it names what could not be read
		return warned(failure(err), unread(t.in, c.args, true))
	}
	if t.closed && warning != "" {
		r.Content = append(r.Content, &sdk.TextContent{Text: "warning: " + warning})
		return r
	}
	return warned(withInputs(r, c.inputs), warning)
}

// withInputs adds the names of the inputs to a result.
func withInputs(r *sdk.CallToolResult, lines []string) *sdk.CallToolResult {
	if len(lines) == 0 {
		return r
	}
	return withMember(r, "inputs", lines, strings.Join(lines, "\n"))
}

// announceTools declares notifications about the list of tools to clients that begin with initialize, as the original
// demesne does: some ask for the list only then. The list never changes. Later protocols have subscriptions, which would
// stay open for nothing.
func announceTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		r, err := next(ctx, method, req)
		if i, ok := r.(*sdk.InitializeResult); ok && i != nil && i.Capabilities != nil && i.Capabilities.Tools != nil {
			changed := *i
			with := *i.Capabilities
			with.Tools = &sdk.ToolCapabilities{ListChanged: true}
			changed.Capabilities = &with
			r = &changed
		}
		return r, err
	}
}

// refuseUnknown answers a call of an unknown tool. It is the only error of a tool call that is a JSON-RPC error.
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

// levels are the valid logging levels.
var levels = []sdk.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// refuseLevel refuses an unknown logging level.
func refuseLevel(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if p, ok := req.GetParams().(*sdk.SetLoggingLevelParams); ok && !slices.Contains(levels, p.Level) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown level %q", p.Level)}
		}
		return next(ctx, method, req)
	}
}

// failure returns an error as a result, so that the model reads it and can correct the call.
func failure(err error) *sdk.CallToolResult {
	text := err.Error()
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		text += "\nhint: " + hinted.Hint()
	}
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: strings.ToValidUTF8(text, "\uFFFD")}}}
}

// hintedError is an error with what its reader can do.
type hintedError struct {
	error
	hint string
}

func (e hintedError) Unwrap() error { return e.error }

// Hint returns what the reader can do.
func (e hintedError) Hint() string { return e.hint }

// hinted adds a hint. The agents of the nested server have no user to ask, and none of the tools that hints name.
func (c *call) hinted(err error, hint string) error {
	if c.opts.Nested {
		return err
	}
	return hintedError{err, hint}
}

// answer returns a result in text and structured form.
func answer(text string, structured any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, StructuredContent: structured}
}
