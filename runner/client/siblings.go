package client

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"demesne/internal/flock"
	"demesne/runner"
	"demesne/runner/ipc"
)

// A caller may have fewer rights than another, because of no_new_privs (a systemd unit, an agent's shell), a label of a
// Linux security module, a seccomp filter, capabilities or resource limits. It then has its own runner, because the
// sandboxes that the two runners make differ. After an upgrade the runner of the former programs continues while it has
// sandboxes. A caller without the variables of the user's session has another run directory.
//
// But each caller may use the other's sandboxes: both are the same user, in the same namespaces, with one protocol. So a
// call about a sandbox goes to the sandbox's runner, over a separate connection.

// siblings holds a client's connections to such runners.
type siblings struct {
	mu    sync.Mutex
	conns map[string]*Client // by key
	homes map[string]*Client // by id or name of a sandbox that was found
}

// of returns the client of the runner that has a sandbox, or c if no runner has it.
func (c *Client) of(ctx context.Context, idOrName string) *Client {
	if home := c.knownHome(idOrName); home != nil {
		return home
	}
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	c.dir.awaitEnding(ctx)
	dirs := c.dir.siblings()
	if len(dirs) == 0 || c.holds(ctx, idOrName) {
		return c
	}
	for _, dir := range dirs {
		if other := c.sibling(ctx, dir); other != nil && other.holds(ctx, idOrName) {
			c.remember(idOrName, other)
			return other
		}
	}
	return c
}

// knownHome returns the client of the other runner in which a sandbox was found, or nil.
func (c *Client) knownHome(idOrName string) *Client {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	home := c.siblings.homes[idOrName]
	if home != nil && home.ended() {
		delete(c.siblings.homes, idOrName)
		return nil
	}
	return home
}

// made records which client's runner has a new sandbox.
func (c *Client) made(id string, home *Client) {
	if home == c || id == "" {
		return
	}
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	c.remember(id, home)
}

// remember records a sandbox's runner. siblings.mu is held.
func (c *Client) remember(idOrName string, home *Client) {
	if c.siblings.homes == nil {
		c.siblings.homes = map[string]*Client{}
	}
	c.siblings.homes[idOrName] = home
}

// holds reports whether a sandbox is live in c's own runner.
func (c *Client) holds(ctx context.Context, idOrName string) bool {
	_, err := c.opened(ctx, idOrName)
	return err == nil
}

func (c *Client) ended() bool {
	select {
	case <-c.peer.Done():
		return true
	default:
		return false
	}
}

// sibling returns a connection to the runner with the key of dir, or nil if none answers. siblings.mu is held.
func (c *Client) sibling(ctx context.Context, dir *runDir) *Client {
	if other := c.siblings.conns[dir.key]; other != nil && !other.ended() {
		return other
	}
	delete(c.siblings.conns, dir.key)
	sock, err := dir.dial()
	if err != nil {
		return nil
	}
	other := c.toSibling(dir)
	conn := ipc.NewConn(sock)
	if err := other.introduce(ctx, conn, sock, &launcher{}); err != nil {
		conn.Close()
		return nil
	}
	other.peer = ipc.NewPeer(conn, other.handle)
	go other.peer.Serve()
	if c.siblings.conns == nil {
		c.siblings.conns = map[string]*Client{}
	}
	c.siblings.conns[dir.key] = other
	return other
}

// toSibling returns a client like c of the runner in dir. It is not connected yet.
func (c *Client) toSibling(dir *runDir) *Client {
	return &Client{
		dir: dir, root: c.root, init: c.init, proxy: c.proxy, frontend: c.frontend, linger: c.linger, totals: c.totals, quota: c.quota,
		ask: c.ask, again: c.again, outMap: c.outMap,
	}
}

// closeSiblings closes all connections to siblings.
func (c *Client) closeSiblings() {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	for _, other := range c.siblings.conns {
		other.Close()
	}
	c.siblings.conns, c.siblings.homes = nil, nil
}

// listed adds the live sandboxes of siblings to infos. A sibling's live information replaces the information from
// files.
func (c *Client) listed(ctx context.Context, infos []runner.Info) []runner.Info {
	c.siblings.mu.Lock()
	defer c.siblings.mu.Unlock()
	at := map[string]int{}
	for i := range infos {
		at[infos[i].ID] = i
	}
	for _, dir := range c.dir.siblings() {
		other := c.sibling(ctx, dir)
		if other == nil {
			continue
		}
		theirs, err := listOf(ctx, other.peer)
		if err != nil {
			continue
		}
		for _, info := range theirs {
			i, known := at[info.ID]
			switch {
			case !known:
				infos = append(infos, info)
			case info.PID != 0: // it is live there
				infos[i] = info
			}
		}
	}
	return infos
}

// siblings returns d with the keys of the runners that differ from d's only in rights, programs or the run directory.
func (d *runDir) siblings() (all []*runDir) {
	for _, in := range append(d.others(), d) {
		for _, key := range in.keys(".sock") {
			other := *in
			other.key = key
			all = append(all, &other)
		}
	}
	return all
}

// keys returns the keys of such runners that have a file with this suffix.
func (d *runDir) keys(suffix string) (keys []string) {
	same, _, _ := strings.Cut(d.key, keySeparator)
	for _, name := range d.lists.names(d.path) {
		key, ok := strings.CutSuffix(name, suffix)
		if ok && key != d.key && strings.HasPrefix(key, same+keySeparator) {
			keys = append(keys, key)
		}
	}
	return keys
}

// endPatience bounds the wait for runners that are ending.
const endPatience = 5 * time.Second

// awaitEnding waits until the runners of disconnected callers have ended, if no other caller can reach them: only their
// locks tell when their persistent sandboxes are stopped.
func (d *runDir) awaitEnding(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	for _, key := range d.keys(".lock") {
		_, rights, _ := strings.Cut(key, keySeparator)
		text, alone := strings.CutPrefix(rights, alonePrefix)
		caller, err := strconv.Atoi(text)
		if alone && err == nil && unix.Kill(caller, 0) == unix.ESRCH {
			awaitUnlocked(ctx, (&runDir{path: d.path, key: key}).file(".lock"))
		}
	}
}

// awaitUnlocked waits until no process has the file locked exclusively, or ctx ends.
func awaitUnlocked(ctx context.Context, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	unlocked := make(chan struct{})
	go func() {
		defer close(unlocked)
		flock.Lock(f, flock.Shared)
		f.Close()
	}()
	select {
	case <-unlocked:
	case <-ctx.Done():
	}
}
