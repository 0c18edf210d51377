package tree

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"demesne/agents"
	"demesne/internal/cmdline"
	"demesne/mcp/hosttools"
	"demesne/session"
)

// hostToolsPort has the tools of this machine's MCP servers, at /NAME/mcp, on the loopback of an agent's sandbox.
const hostToolsPort = 8090

// varAllowlist names the file that says which tools agents may use.
const varAllowlist = "DEMESNE_MCP_ALLOWLIST"

// hostTools are the MCP servers of this machine that the user allows agents something of. They are read once.
type hostTools struct {
	servers []hosttools.Server
	allowed hosttools.Allowlist
}

// hostTools reads the configurations of the user's own agents, and the allowlist. What cannot be read only disables host
// tools, with a warning.
func (f *console) hostTools(catalog *agents.Catalog, warn func(string)) *hostTools {
	path := f.getenv(varAllowlist)
	if home, err := os.UserHomeDir(); path == "" && err == nil {
		path = filepath.Join(home, ".config/demesne/mcp-allowlist.json")
	}
	allowed, err := hosttools.ReadAllowlist(path)
	if err != nil {
		warn(fmt.Sprintf("no host tools: %v", err))
		return &hostTools{}
	}
	var configs []hosttools.Config
	for _, t := range catalog.Tools() {
		configs = append(configs, hosttools.Config{Path: t.File, Format: hosttools.Format(t.Format)})
	}
	servers, warnings := hosttools.Read(configs...)
	for _, w := range warnings {
		warn("host tools: " + w)
	}
	return &hostTools{servers, allowed}
}

// openHostTools returns the tools for one agent, or nil: see mayUseTools.
func (n *node) openHostTools() *hosttools.Set {
	h := n.tree.tools
	some, onlyNamed := n.mayUseTools()
	if h == nil || !some {
		return nil
	}
	s := hosttools.Open(h.servers, h.allowed, hosttools.Options{
		Version: cmdline.Version, OnlyNamed: onlyNamed, Workspace: n.dirs.workspace, Warn: func(line string) { n.note("host tools: %s", line) },
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
		generated = generated || len(n.tree.tools.allowed[name].Generated) > 0
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
