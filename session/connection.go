package session

import (
	"context"
	"errors"
	"sync"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// connection is a connection to a runner. It connects on first use, and again when that runner has ended.
type connection struct {
	connect func(context.Context, client.Options) (Engine, error)
	opts    client.Options

	mu        sync.Mutex
	engine    Engine
	sandboxes map[string]*Sandbox // made or opened with engine; see known
}

// with calls f with a live client. If the runner has ended since the last call, or is about to, it calls f once
// more with a new client. So f must have had no effect if its error is ipc.CodeGone.
func (c *connection) with(ctx context.Context, f func(Engine) error) error {
	live, _, err := c.get(ctx, false)
	if err != nil {
		return err
	}
	if err = f(live); !gone(err) {
		return err
	}
	// Perhaps only the sandbox is gone.
	if _, lerr := live.List(ctx); !gone(lerr) {
		return err
	}
	c.forget(live)
	if live, _, err = c.get(ctx, false); err != nil {
		return err
	}
	return f(live)
}

// get returns a live engine, and whether it is new. network is a hint: see client.Options.
func (c *connection) get(ctx context.Context, network bool) (_ Engine, fresh bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live() {
		return c.engine, false, nil
	}
	o := c.opts
	o.Network = network
	live, err := c.connect(ctx, o)
	if err != nil {
		return nil, false, err
	}
	c.engine, c.sandboxes = live, map[string]*Sandbox{}
	return live, true, nil
}

// live reports whether the runner is connected, and drops one that has ended. c.mu must be held.
func (c *connection) live() bool {
	if c.engine == nil {
		return false
	}
	select {
	case <-c.engine.Done():
		c.drop()
	default:
	}
	return c.engine != nil
}

func (c *connection) drop() {
	if c.engine != nil {
		c.engine.Close()
		c.engine, c.sandboxes = nil, nil
	}
}

func (c *connection) forget(live Engine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live.Close()
	if c.engine == live {
		c.drop()
	}
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// known returns the sandbox with this id if it was made or opened through the current client, or else nil. The sandbox
// may have ended since.
func (c *connection) known(id string) *Sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live() {
		return nil
	}
	return c.sandboxes[id]
}

// knownMost bounds the number of cached sandboxes.
const knownMost = 1024

// know caches a sandbox that live made or opened. The key is its id, because a name may be reused.
func (c *connection) know(live Engine, sb *Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.engine != live {
		return
	}
	if len(c.sandboxes) >= knownMost {
		clear(c.sandboxes)
	}
	c.sandboxes[sb.ID] = sb
}

func (c *connection) unknow(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sandboxes, id)
}

func gone(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeGone
}

// create makes a sandbox. It ignores the cancellation of ctx while the runner works, or the id of a new sandbox
// could be lost; that takes milliseconds.
func (c *connection) create(ctx context.Context, spec runner.Spec) (sb *Sandbox, err error) {
	err = c.with(ctx, func(live Engine) error {
		if sb, err = live.Create(context.WithoutCancel(ctx), spec); err == nil {
			c.know(live, sb)
		}
		return err
	})
	if err == nil && ctx.Err() != nil {
		if !sb.Existing {
			c.remove(sb.ID)
		}
		return nil, context.Cause(ctx)
	}
	return sb, err
}

// userns opens the user namespace of the runner.
func (c *connection) userns(ctx context.Context) (u *client.Userns, err error) {
	err = c.with(ctx, func(live Engine) error {
		u, err = live.Userns()
		return err
	})
	return u, err
}

// remove removes a sandbox that has no user any more, even if the request's context has ended.
func (c *connection) remove(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), runner.RemoveTime)
	defer cancel()
	return c.with(ctx, func(live Engine) error { return live.Remove(ctx, id) })
}

// LandlockABI returns the kernel's version of Landlock, or 0.
func LandlockABI() int { return client.LandlockABI() }
