package hosttools

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// relay passes requests of a sandbox on to one server of the host, as far as the rule allows them.
type relay struct {
	server Server
	rule   Rule
	o      Options
	front  *sdk.Server // what the sandbox talks to

	life context.Context // ends with close
	die  context.CancelFunc

	mu       sync.Mutex
	session  *sdk.ClientSession // nil: the server does not run
	readOnly map[string]bool    // of the tools that the running server listed
	calls    int
	idle     *time.Timer
	closed   bool
	progress map[string]func(*sdk.ProgressNotificationParams) // of calls in flight, by the token that the server knows
	token    int
}

// startTime bounds the start of a server. The first start of one from a package registry downloads it.
const startTime = 2 * time.Minute

func newRelay(server Server, rule Rule, o Options) *relay {
	r := &relay{server: server, rule: rule, o: o, progress: map[string]func(*sdk.ProgressNotificationParams){}}
	r.life, r.die = context.WithCancel(context.Background())
	r.idle = time.AfterFunc(time.Hour, r.rest)
	r.idle.Stop()
	can := &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}
	if rule.Resources {
		can.Resources = &sdk.ResourceCapabilities{}
	}
	if rule.Prompts {
		can.Prompts = &sdk.PromptCapabilities{}
	}
	r.front = sdk.NewServer(&sdk.Implementation{Name: server.Name, Version: o.Version}, &sdk.ServerOptions{Capabilities: can})
	r.front.AddReceivingMiddleware(r.handle)
	return r
}

// handle answers the requests that the rule allows. The SDK answers requests of the protocol itself.
func (r *relay) handle(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch p := req.GetParams().(type) {
		case *sdk.ListToolsParams:
			return with(ctx, r, func(s *sdk.ClientSession) (*sdk.ListToolsResult, error) { return r.listTools(ctx, s) })
		case *sdk.CallToolParamsRaw:
			return with(ctx, r, func(s *sdk.ClientSession) (*sdk.CallToolResult, error) { return r.callTool(ctx, s, req, p) })
		case *sdk.ListResourcesParams:
			if r.rule.Resources {
				return with(ctx, r, func(s *sdk.ClientSession) (*sdk.ListResourcesResult, error) { return s.ListResources(ctx, p) })
			}
		case *sdk.ListResourceTemplatesParams:
			if r.rule.Resources {
				return with(ctx, r, func(s *sdk.ClientSession) (*sdk.ListResourceTemplatesResult, error) {
					return s.ListResourceTemplates(ctx, p)
				})
			}
		case *sdk.ReadResourceParams:
			if r.rule.Resources {
				return with(ctx, r, func(s *sdk.ClientSession) (*sdk.ReadResourceResult, error) { return s.ReadResource(ctx, p) })
			}
		case *sdk.ListPromptsParams:
			if r.rule.Prompts {
				return with(ctx, r, func(s *sdk.ClientSession) (*sdk.ListPromptsResult, error) { return s.ListPrompts(ctx, p) })
			}
		case *sdk.GetPromptParams:
			if r.rule.Prompts {
				return with(ctx, r, func(s *sdk.ClientSession) (*sdk.GetPromptResult, error) { return s.GetPrompt(ctx, p) })
			}
		case *sdk.CompleteParams, *sdk.SubscribeParams, *sdk.UnsubscribeParams:
		default:
			return next(ctx, method, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: method + " is not allowed for this server"}
	}
}

// with calls do with the running server, which it starts if necessary.
func with[T sdk.Result](ctx context.Context, r *relay, do func(*sdk.ClientSession) (T, error)) (sdk.Result, error) {
	s, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer r.end(s)
	v, err := do(s)
	if err != nil {
		return nil, err // not v, which would be a typed nil
	}
	return v, nil
}

// listTools returns the allowed tools, and remembers which of them change nothing.
func (r *relay) listTools(ctx context.Context, s *sdk.ClientSession) (*sdk.ListToolsResult, error) {
	out := &sdk.ListToolsResult{Tools: []*sdk.Tool{}}
	readOnly := map[string]bool{}
	for t, err := range s.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		readOnly[t.Name] = t.Annotations != nil && t.Annotations.ReadOnlyHint
		if r.rule.Tools.allows(t.Name, readOnly[t.Name]) {
			out.Tools = append(out.Tools, t)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readOnly = readOnly
	return out, nil
}

// allowed reports whether a tool may be called. It lists the tools first if that matters.
func (r *relay) allowed(ctx context.Context, s *sdk.ClientSession, tool string) (bool, error) {
	r.mu.Lock()
	known := r.readOnly
	r.mu.Unlock()
	if known == nil && r.rule.Tools.Default {
		if _, err := r.listTools(ctx, s); err != nil {
			return false, err
		}
		return r.allowed(ctx, s, tool)
	}
	return r.rule.Tools.allows(tool, known[tool]), nil
}

func (r *relay) callTool(ctx context.Context, s *sdk.ClientSession, req sdk.Request, p *sdk.CallToolParamsRaw) (*sdk.CallToolResult, error) {
	ok, err := r.allowed(ctx, s, p.Name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("tool %q is not allowed for this server", p.Name)}
	}
	call := &sdk.CallToolParams{Name: p.Name, Arguments: p.Arguments}
	defer r.report(ctx, req, p, call)()
	began := time.Now()
	res, err := s.CallTool(ctx, call)
	if err != nil {
		return nil, err
	}
	return r.deliver(res, began), nil
}

// report passes the server's progress on to the client, and signs of life beside it. done ends that.
func (r *relay) report(ctx context.Context, req sdk.Request, p *sdk.CallToolParamsRaw, call *sdk.CallToolParams) (done func()) {
	client, ok := req.GetSession().(*sdk.ServerSession)
	if !ok {
		return func() {}
	}
	var token any = keepaliveToken
	if asked := p.GetProgressToken(); asked != nil {
		token = asked
	}
	b := &beat{send: func(n *sdk.ProgressNotificationParams) {
		n.ProgressToken = token
		client.NotifyProgress(ctx, n)
	}}
	r.mu.Lock()
	r.token++
	name := fmt.Sprintf("demesne-%d", r.token)
	r.progress[name] = b.pass
	r.mu.Unlock()
	call.SetProgressToken(name)
	stop := b.start(ctx, r.o.Heartbeat)
	return func() {
		stop()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.progress, name)
	}
}

// progressed passes on a notification of the server.
func (r *relay) progressed(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
	name, _ := req.Params.ProgressToken.(string)
	r.mu.Lock()
	pass := r.progress[name]
	r.mu.Unlock()
	if pass != nil {
		pass(req.Params)
	}
}

// begin returns a session with the running server, and counts a call.
func (r *relay) begin(ctx context.Context) (*sdk.ClientSession, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errors.New("this sandbox is ending")
	}
	if r.session == nil {
		s, err := r.start(ctx)
		if err != nil {
			err = fmt.Errorf("start server %q: %w", r.server.Name, err)
			r.o.Warn(err.Error())
			return nil, err
		}
		r.session, r.readOnly = s, nil
		go r.wait(s)
	}
	r.calls++
	r.idle.Stop()
	return r.session, nil
}

// noHost keeps a demesne-mcp under another name from offering commands of the host to an agent in a sandbox.
const noHost = "DEMESNE_HOST_POLICY=none"

// start starts the server's process in a session of its own, so that a Ctrl-C at the user's terminal does not end it
// before its calls.
func (r *relay) start(ctx context.Context) (*sdk.ClientSession, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	cmd := exec.Command(r.server.Command, r.server.Args...)
	cmd.Env, cmd.Dir = append(slices.Clip(r.server.Env), noHost), r.server.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c := sdk.NewClient(&sdk.Implementation{Name: "demesne", Version: r.o.Version}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, ProgressNotificationHandler: r.progressed,
	})
	return c.Connect(ctx, &sdk.CommandTransport{Command: cmd, TerminateDuration: 2 * time.Second}, nil)
}

// wait forgets a session whose server has ended.
func (r *relay) wait(s *sdk.ClientSession) {
	s.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session == s {
		r.session = nil
	}
}

// end counts the end of a call.
func (r *relay) end(*sdk.ClientSession) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls--; r.calls == 0 && !r.closed {
		r.idle.Reset(r.o.Idle)
	}
}

// rest stops a server that was idle.
func (r *relay) rest() {
	r.mu.Lock()
	s := r.session
	if r.calls > 0 {
		s = nil
	} else {
		r.session = nil
	}
	r.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

func (r *relay) close() {
	r.die() // a start has the lock
	r.mu.Lock()
	r.closed = true
	r.idle.Stop()
	s := r.session
	r.session = nil
	r.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// Options configures a Set.
type Options struct {
	Version string
	// Workspace is the directory of the host that is /workspace inside; empty: generated files are not delivered.
	Workspace string
	// OnlyNamed offers no tool because it declares to change nothing: the allowlist must name it, or allow all.
	OnlyNamed bool
	Idle      time.Duration // the time after which an idle server is stopped; 0: 10 minutes
	Heartbeat time.Duration // between two signs of life of a call; 0: 10 s
	Warn      func(string)  // receives one line about a server that failed; nil: none
}
