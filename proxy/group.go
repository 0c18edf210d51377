package proxy

import (
	"context"
	"net"
	"net/url"

	"demesne/proxy/policy"
)

// Group is the group of a sandbox. Its members are sandboxes, which the sandbox reaches by name.
type Group interface {
	Name() string
	// Has reports whether a live sandbox of the group has the name.
	Has(member string) bool
	// Dial connects to a TCP port that the member listens on.
	Dial(ctx context.Context, member string, port uint16) (net.Conn, error)
}

// member decides about q if its name belongs to a member of the group. A host that a rule or a secret names is never a
// member: no sandbox can take the place of a host that the caller trusts.
func (p *Proxy) member(q policy.Query) (d policy.Decision, ok bool) {
	if p.Group == nil || q.Name.IsZero() || p.secrets.name(q.Name) || !p.Group.Has(q.Name.String()) {
		return d, false
	}
	return p.policy.Load().Member(q, p.Group.Name())
}

// memberConn is a connection to a member, for HTTP requests. A request to a host of the same name must not use it.
type memberConn struct{ net.Conn }

// upstream returns the proxy of the host that a flow's requests go to, or nil. Members are behind no other proxy.
func (f *flow) upstream() (*url.URL, error) {
	if f.d.Group != "" {
		return nil, nil
	}
	return f.p.Upstream.forRequest(f.url())
}
