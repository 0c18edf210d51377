package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"

	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// groups counts the sandboxes that have a place in a group: one that ends may have a successor already.
type groups struct {
	mu   sync.Mutex
	live map[runner.Member]int
}

// add adds n to the sandboxes of a member, by its name and its aliases. It ignores the zero Member.
func (g *groups) add(m runner.Member, aliases []string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m == (runner.Member{}) {
		return
	}
	if g.live == nil {
		g.live = map[runner.Member]int{}
	}
	for _, name := range append([]string{m.Name}, aliases...) {
		m.Name = name
		if g.live[m] += n; g.live[m] == 0 {
			delete(g.live, m)
		}
	}
}

func (g *groups) has(m runner.Member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.live[m] > 0
}

// membership is the group of one sandbox. The runner, which has the namespaces, makes the connections.
type membership struct {
	all     *groups
	peer    *ipc.Peer
	sandbox string
	member  runner.Member
	name    string
}

func (g *membership) Name() string { return g.name }

func (g *membership) Has(member string) bool {
	return g.all.has(runner.Member{Group: g.member.Group, Name: member})
}

func (g *membership) Dial(ctx context.Context, member string, port uint16) (net.Conn, error) {
	m, err := g.peer.CallMessage(ctx, proxyclient.OpDial, proxyclient.Question{Sandbox: g.sandbox, Name: member, Port: port}, nil)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", member, err)
	}
	defer m.Close()
	f := m.File(proxyclient.FileDialled)
	if f == nil {
		return nil, fmt.Errorf("connect to %s: %w", member, os.ErrInvalid)
	}
	defer f.Close()
	return net.FileConn(f)
}
