package client

import (
	"context"
	"os"
	"strings"
	"sync"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// A caller whose rights are narrower than another's, by no_new_privs (a systemd unit, an agent's shell) or by resource limits, has a
// runner of its own: what the two make differs. What one of them made, the other may use: both are the same user, in the same namespaces, with the same
// programs. So a call about a sandbox goes to the runner in which that lives, over a connection of its own.

// siblings are the connections of a client to such runners.
type siblings struct {
	mu    sync.Mutex
	conns map[string]*Client // by key
	homes map[string]*Client // by id or name of what was found
}

// of is the client of the runner in which a sandbox lives, and c if that is in none.
func (c *Client) of(ctx context.Context, idOrName string) *Client {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	if home := c.siblings.homes[idOrName]; home != nil && !home.ended() {
		return home
	}
	delete(c.siblings.homes, idOrName)
	keys := c.dir.siblings()
	if len(keys) == 0 || c.holds(ctx, idOrName) {
		return c
	}
	for _, key := range keys {
		if other := c.sibling(ctx, key); other != nil && other.holds(ctx, idOrName) {
			c.remember(idOrName, other)
			return other
		}
	}
	return c
}

// made notes where a sandbox was made.
func (c *Client) made(id string, home *Client) {
	if home == c || id == "" {
		return
	}
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	c.remember(id, home)
}

// remember is made while siblings.mu is held.
func (c *Client) remember(idOrName string, home *Client) {
	if c.siblings.homes == nil {
		c.siblings.homes = map[string]*Client{}
	}
	c.siblings.homes[idOrName] = home
}

// holds says whether a sandbox lives in c's own runner.
func (c *Client) holds(ctx context.Context, idOrName string) bool {
	var reply api.Opened
	return c.peer.Call(ctx, api.OpOpen, api.Target{Sandbox: idOrName}, nil, &reply) == nil
}

func (c *Client) ended() bool {
	select {
	case <-c.peer.Done():
		return true
	default:
		return false
	}
}

// sibling is the connection to the runner with that key, or nil if none answers. siblings.mu is held.
func (c *Client) sibling(ctx context.Context, key string) *Client {
	if other := c.siblings.conns[key]; other != nil && !other.ended() {
		return other
	}
	delete(c.siblings.conns, key)
	dir := *c.dir
	dir.key = key
	sock, err := dialRunner(&dir)
	if err != nil {
		return nil
	}
	other := &Client{dir: &dir, root: c.root, init: c.init, proxy: c.proxy, door: c.door, linger: c.linger, ask: c.ask, again: c.again}
	conn := ipc.NewConn(sock)
	if err := other.introduce(ctx, conn, sock, &launcher{}); err != nil {
		conn.Close()
		return nil
	}
	other.serve(conn)
	if c.siblings.conns == nil {
		c.siblings.conns = map[string]*Client{}
	}
	c.siblings.conns[key] = other
	return other
}

// closeSiblings ends all connections of siblings.
func (c *Client) closeSiblings() {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	for _, other := range c.siblings.conns {
		other.Close()
	}
	c.siblings.conns, c.siblings.homes = nil, nil
}

// listed adds what lives in siblings to infos: their own word replaces what their files say.
func (c *Client) listed(ctx context.Context, infos []runner.Info) []runner.Info {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	at := map[string]int{}
	for i := range infos {
		at[infos[i].ID] = i
	}
	for _, key := range c.dir.siblings() {
		other := c.sibling(ctx, key)
		if other == nil {
			continue
		}
		var theirs []runner.Info
		if other.peer.Call(ctx, api.OpList, nil, nil, &theirs) != nil {
			continue
		}
		for _, info := range theirs {
			i, known := at[info.ID]
			switch {
			case !known:
				infos = append(infos, info)
			case info.PID != 0: // it lives there
				infos[i] = info
			}
		}
	}
	return infos
}

// siblings are the keys of the runners that differ from d's in rights alone.
func (d *runDir) siblings() (keys []string) {
	same, _, _ := strings.Cut(d.key, keySeparator)
	dir, err := os.Open(d.path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		key, ok := strings.CutSuffix(name, ".sock")
		if ok && key != d.key && strings.HasPrefix(key, same+keySeparator) {
			keys = append(keys, key)
		}
	}
	return keys
}
