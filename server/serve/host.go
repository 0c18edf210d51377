package serve

import (
	"cmp"
	"context"
	"path/filepath"

	"demesne/mcp/toolbackend"
	"demesne/server/hostcmd/hostaccess"
)

// openHost opens the guard of host commands, if the operator named a policy. MCP and REST have the same one.
func (p *program) openHost(context.Context) (err error) {
	if p.options.HostPolicy == "" {
		return nil
	}
	p.host, err = hostaccess.Open(toolbackend.HostOptions(hostaccess.Options{
		Policy: p.options.HostPolicy, Audit: p.operate.Record, Secrets: []string{p.access.Token},
		Private: []string{cmp.Or(p.options.TokenFile, filepath.Join(p.state, "token"))},
	}))
	if err == nil {
		p.closers = append(p.closers, p.host.Close)
	}
	return err
}
