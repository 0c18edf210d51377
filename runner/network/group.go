package network

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/ipc"
)

// Groups has the live sandboxes of a runner that are in groups. demesne-proxy decides about a connection between two of them
// and asks the runner for it: the runner makes it in the namespace of the target, from the target's own address. No packet
// passes between the two namespaces, and a sandbox without the group has no entry here. The zero value is empty.
type Groups struct {
	mu   sync.Mutex
	live map[runner.Member]*place
	made uint64
}

// place is one sandbox's place in its group.
type place struct {
	member  runner.Member
	aliases []string
	number  uint64 // rises with each place
	ns      *netns.NS
	slots   chan struct{}

	open  string // how it reaches everything; empty: it does not, or its caller allows that beside data
	holds string // the data of the host that it has; empty: none
}

// mostPending bounds the connections to one sandbox that its servers have not answered. The kernel answers for a server that
// listens, unless its queue is full.
const mostPending = 64

// join gives the sandbox in ns the place of m. A sandbox of the same name that is ending loses it.
func (g *Groups) join(m runner.Member, aliases []string, ns *netns.NS) (*place, error) {
	own, err := ns.Dup()
	if err != nil {
		return nil, err
	}
	p := &place{member: m, aliases: aliases, ns: own, slots: make(chan struct{}, mostPending)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.made++
	p.number = g.made
	if g.live == nil {
		g.live = map[runner.Member]*place{}
	}
	g.live[m] = p
	return p, nil
}

// find returns the place of a name in a group, or nil. g.mu is held.
func (g *Groups) find(m runner.Member) (found *place) {
	if p := g.live[m]; p != nil {
		return p
	}
	for _, p := range g.live {
		if p.member.Group == m.Group && slices.Contains(p.aliases, m.Name) && (found == nil || p.number > found.number) {
			found = p
		}
	}
	return found
}

// listen listens on an address of the loopback of the sandbox that from knows by name.
func (g *Groups) listen(from runner.Member, name string, at netip.AddrPort) (*os.File, error) {
	if !at.Addr().IsLoopback() || !at.Addr().Is4() || at.Port() == 0 {
		return nil, fmt.Errorf("%v is not a port of 127.0.0.1", at)
	}
	g.mu.Lock()
	defer g.mu.Unlock() // or the namespace could be closed meanwhile
	to := g.find(runner.Member{Group: from.Group, Name: name})
	if to == nil {
		return nil, ipc.NoSuchSandbox(name)
	}
	return to.ns.Listen(at)
}

// leave gives up a place. p may be nil.
func (g *Groups) leave(p *place) {
	if p == nil {
		return
	}
	g.mu.Lock()
	if g.live[p.member] == p {
		delete(g.live, p.member)
	}
	g.mu.Unlock()
	p.ns.File.Close() // not of ns: a connection may be in the making
}

// settle records how the sandbox of p reaches everything and what data it has. It rejects the sandbox if data of one sandbox
// could leave through another.
func (g *Groups) settle(p *place, open, holds string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.live {
		if other == p || other.member.Group != p.member.Group {
			continue
		}
		text := ""
		switch {
		case open != "" && other.holds != "":
			text = fmt.Sprintf("%s and %s of sandbox %q", open, other.holds, other.member.Name)
		case holds != "" && other.open != "":
			text = fmt.Sprintf("%s of sandbox %q and %s", other.open, other.member.Name, holds)
		}
		if text != "" {
			return &ipc.Error{Code: ipc.CodeInvalid, Text: text + ": the group could send your files to any server", Hint: "allow only the hosts it needs, or pass no inputs"}
		}
	}
	p.open, p.holds = open, holds
	return nil
}

// dial connects to a port of the sandbox that from knows by name. It is connected to the address of the pair, so that servers
// of the sandbox's loopback stay its own: among them are demesne's own, with credentials.
func (g *Groups) dial(ctx context.Context, from runner.Member, name string, port uint16) (*os.File, error) {
	g.mu.Lock()
	to := g.find(runner.Member{Group: from.Group, Name: name})
	g.mu.Unlock()
	if to == nil {
		return nil, ipc.NoSuchSandbox(name)
	}
	select {
	case to.slots <- struct{}{}:
		defer func() { <-to.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var refused error // by the first address
	for _, addr := range netns.SandboxAddrs() {
		c, err := to.ns.DialTCP(ctx, netip.AddrPortFrom(addr, port))
		if err == nil {
			defer c.Close()
			return c.File()
		}
		refused = cmp.Or(refused, err)
	}
	return nil, refused
}

// openWord says how a sandbox reaches everything. It returns "" if the sandbox does not, or its caller allows that beside
// data of the host.
func openWord(asked *runner.Egress, open bool) string {
	switch {
	case !open || asked.OpenWithInputs && !asked.Learn:
		return ""
	case asked.Learn:
		return "--learn"
	}
	return "open egress"
}

// holds returns some data of the host that a sandbox has, or "".
func holds(spec *runner.Spec) string {
	switch {
	case len(spec.Inputs) > 0:
		return fmt.Sprintf("input %q", spec.Inputs[0].Path)
	case spec.Workspace != "":
		return fmt.Sprintf("workspace %q", spec.Workspace)
	case slices.ContainsFunc(spec.Mounts, ofHost):
		return fmt.Sprintf("mount %q", spec.Mounts[slices.IndexFunc(spec.Mounts, ofHost)].Source)
	case spec.Rootfs != nil && spec.Rootfs.Dir != "":
		return fmt.Sprintf("directory %q", spec.Rootfs.Dir)
	}
	return ""
}

// ofHost reports whether a mount has files of the host.
func ofHost(m runner.Mount) bool { return !m.Socket }
