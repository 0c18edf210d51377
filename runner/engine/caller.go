package engine

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
	"demesne/runner/sandbox"
)

// caller is one connection. It owns the one-shot sandboxes made through it, and they end with it.
type caller struct {
	e        *Engine
	peer     *ipc.Peer
	frontend runner.Frontend

	mu   sync.Mutex
	gone bool
	own  map[string]*sandbox.Sandbox // by id
	most *runner.Limits              // bound on all sandboxes together; nil: no bound

	quota runner.Quota
	slots map[string]*slot // places that it reserved, and that no create call has taken

	ephemeral []string // sandboxes, snapshots and forks that are removed with it
	unacked   []string // forks that are removed with it unless it calls about them
}

// Left reports whether c has disconnected.
func (c *caller) Left() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// adopt makes c the owner of a one-shot sandbox. It returns false if c has disconnected.
func (c *caller) adopt(s *sandbox.Sandbox) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.own[s.ID()] = s
	}
	return !c.gone
}

// Disown ends the ownership of adopt.
func (c *caller) Disown(id string) {
	c.mu.Lock()
	delete(c.own, id)
	c.mu.Unlock()
}

// Event sends c a message that it did not ask for.
func (c *caller) Event(op ipc.Op, body any) error { return c.peer.Event(op, body) }

// Done is closed when c has disconnected.
func (c *caller) Done() <-chan struct{} { return c.peer.Done() }

// acked records that c has called about sandbox id.
func (c *caller) acked(id string) {
	c.mu.Lock()
	c.unacked = slices.DeleteFunc(c.unacked, func(of string) bool { return of == id })
	c.mu.Unlock()
}

// bind removes a sandbox when c ends.
func (c *caller) bind(id string) {
	c.mu.Lock()
	c.ephemeral = append(c.ephemeral, id)
	c.mu.Unlock()
}

// removeForks removes the ephemeral snapshots and forks and the unacknowledged forks of c, unless c has removed them.
func (c *caller) removeForks() {
	c.mu.Lock()
	ids := append(c.ephemeral, c.unacked...)
	c.ephemeral, c.unacked = nil, nil
	c.mu.Unlock()
	for _, id := range ids {
		live, rec, err := c.e.table.locate(id)
		switch {
		case err != nil:
			continue
		case live != nil:
			err = c.e.stop(live, api.Target{})
		default:
			err = c.e.machine.StopOther(rec, false)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "demesne-runner: remove fork: %v\n", err)
		}
	}
}

// outMap keeps the namespace that [api.FileOutMap] describes for later callers.
type outMap struct {
	mu sync.Mutex
	ns *os.File // nil: none yet; open until the runner's end
}

func (o *outMap) keep(ns *os.File) {
	if ns == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns != nil {
		ns.Close()
		return
	}
	o.ns = ns
}

func (o *outMap) files() ipc.Files {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ns == nil {
		return nil
	}
	return ipc.Files{api.FileOutMap: o.ns}
}
