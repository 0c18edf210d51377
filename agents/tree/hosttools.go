package tree

import (
	"context"
	"errors"
	"net/http"
	"time"

	"demesne/agents"
	"demesne/mcp/hosttools"
	"demesne/session"
)

// hostToolsPort has the tools of this machine's MCP servers, at /NAME/mcp, on the loopback of an agent's sandbox.
const hostToolsPort = 8090

// HostTools are the MCP servers of this machine, and what of them the user allows agents. The zero value has none.
type HostTools struct {
	Servers []hosttools.Server
	Allowed hosttools.Allowlist
	Version string // of demesne, for the servers
}

// openHostTools returns the tools for one agent, or nil: see mayUseTools.
func (n *node) openHostTools() *hosttools.Set {
	h := n.tree.Tools
	some, onlyNamed := n.mayUseTools()
	if len(h.Servers) == 0 || !some {
		return nil
	}
	s := hosttools.Open(h.Servers, h.Allowed, hosttools.Options{
		Version: h.Version, OnlyNamed: onlyNamed, Workspace: n.dirs.workspace, Warn: func(line string) { n.note("host tools: %s", line) },
	})
	if len(s.Names()) == 0 {
		return nil
	}
	return s
}

// toolServers are the entries of the program's configuration for host tools.
func (n *node) toolServers() (all []agents.Server, generated bool) {
	if n.tools == nil {
		return nil, false
	}
	for _, name := range n.tools.Names() {
		all = append(all, agents.Server{Name: name, Port: hostToolsPort, Path: hosttools.Path(name), Note: "a tool of the host; it cannot see this sandbox's files"})
		generated = generated || len(n.tree.Tools.Allowed[name].Generated) > 0
	}
	return all, generated
}

// serveTools serves the host tools on the loopback of the sandbox, until the agent ends.
func (n *node) serveTools(sb *session.Sandbox) {
	if n.tools == nil {
		return
	}
	l, err := sb.Listener(hostToolsPort)
	if err != nil {
		n.note("host tools: %v", err)
		return
	}
	server := &http.Server{Handler: n.tools, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(n.ctx, func() { server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && n.ctx.Err() == nil {
			n.note("host tools: %v", err)
		}
	}()
}
