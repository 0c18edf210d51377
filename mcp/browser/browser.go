// Package browser drives browsers in sandboxes: in each runs playwright-mcp, Microsoft's MCP server for Playwright, and this
// package is its client.
//
//	browser.go  the browsers of a frontend; server.go: playwright-mcp in a sandbox, and its answers
//	tools.go    the table of tools, and how their arguments become arguments of playwright-mcp
//
//	var b browser.Browsers
//	r, err := b.Call(ctx, sandbox, tool, arguments)
//
// The tools and their descriptions are a table of this package (tools.go). So nothing that a sandbox says becomes part of a list of
// tools. A page may control the browser and every process beside it. Only texts and pictures of an answer are used. Their sizes and
// the time of a call are bounded. The server's own requests are refused, because this client declares no capability.
//
// The package decides nothing about networks: the rules of the sandbox hold for its browser. Recipe browser turns off
// what those rules cannot see, such as QUIC (images/recipes/browser).
package browser

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"demesne/session"
)

// Browsers are the browsers of a frontend: at most one for each sandbox. The zero value has none. It is safe for concurrent use.
type Browsers struct {
	program string        // text of a shell, in place of the server's; for tests
	most    time.Duration // of a call; 0: callTime

	mu   sync.Mutex
	live map[string]*browser // by the ids of sandboxes
}

// browser is the browser of one sandbox, or the room for one.
type browser struct {
	calls  int           // number of calls that have it or wait for it; under Browsers.mu
	turn   chan struct{} // holds one value during a call
	server *server       // nil: none was started, or it was ended
}

// Call calls a tool in the browser of a sandbox, which it starts first if none runs. Calls for the same browser take turns. A browser
// that does not answer in time is ended, and the next call starts another.
func (b *Browsers) Call(ctx context.Context, sb *session.Sandbox, tool string, args map[string]any) (*Result, error) {
	name, values, err := translate(tool, args)
	if err != nil {
		return nil, err
	}
	one := b.take(sb.ID)
	defer b.leave(one)
	select {
	case one.turn <- struct{}{}:
		defer func() { <-one.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if name == closeTool {
		one.end()
		return &Result{Text: "closed", Sandbox: sb.ID, Out: sb.Out}, nil
	}
	started := !one.server.runs()
	if started {
		if one.server, err = start(ctx, sb, session.Shell(cmp.Or(b.program, program))); err != nil {
			return nil, fmt.Errorf("start browser: %w", err)
		}
	}
	r, err := one.server.call(ctx, cmp.Or(b.most, callTime), name, values)
	switch {
	case err != nil && ctx.Err() != nil: // the caller's: the browser may still answer the next call
		return nil, context.Cause(ctx)
	case err != nil:
		err = one.server.explain(err)
		one.end()
		return nil, err
	}
	r.Started, r.Sandbox, r.Out = started, sb.ID, sb.Out
	return r, nil
}

// end ends the browser. The caller has the turn.
func (o *browser) end() {
	if o.server != nil {
		o.server.kill()
		o.server = nil
	}
}

// take returns the browser of a sandbox for one call, which leaves it at its end. It forgets browsers that no call has and whose servers
// have ended, as in removed sandboxes.
func (b *Browsers) take(id string) *browser {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.live, func(_ string, one *browser) bool { return one.calls == 0 && !one.server.runs() })
	one := b.live[id]
	if one == nil {
		if b.live == nil {
			b.live = map[string]*browser{}
		}
		one = &browser{turn: make(chan struct{}, 1)}
		b.live[id] = one
	}
	one.calls++
	return one
}

// leave ends a call's use of a browser.
func (b *Browsers) leave(one *browser) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one.calls--
}
