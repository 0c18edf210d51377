package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"demesne/runner"
	"demesne/runner/client"
	"demesne/runner/ipc"
)

// connection is a connection to a runner. It reconnects when that runner has ended. The zero value connects on
// first use.
type connection struct {
	opts client.Options

	mu     sync.Mutex
	client *client.Client
	boxes  map[string]*client.Sandbox // opened with client; see known
}

// with calls f with a live client. If the runner has ended since the last call, or is about to, it calls f once
// more with a new client. So f must have had no effect if its error is ipc.CodeGone.
func (c *connection) with(ctx context.Context, f func(*client.Client) error) error {
	live, err := c.get(ctx)
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
	if live, err = c.get(ctx); err != nil {
		return err
	}
	return f(live)
}

func (c *connection) get(ctx context.Context) (*client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live() {
		live, err := client.Connect(ctx, c.opts)
		if err != nil {
			return nil, err
		}
		c.client, c.boxes = live, map[string]*client.Sandbox{}
	}
	return c.client, nil
}

// live reports whether the runner is connected, and drops one that has ended. c.mu must be held.
func (c *connection) live() bool {
	if c.client == nil {
		return false
	}
	select {
	case <-c.client.Done():
		c.drop()
	default:
	}
	return c.client != nil
}

func (c *connection) drop() {
	if c.client != nil {
		c.client.Close()
		c.client, c.boxes = nil, nil
	}
}

func (c *connection) forget(live *client.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live.Close()
	if c.client == live {
		c.drop()
	}
}

func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

// known returns the sandbox with this id if it was opened through the current client, or else nil. The sandbox
// may have ended since.
func (c *connection) known(id string) *client.Sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live() {
		return nil
	}
	return c.boxes[id]
}

// knownMost bounds the number of cached sandboxes.
const knownMost = 1024

// know caches a sandbox opened by live. The key is its id, because a name may be reused.
func (c *connection) know(live *client.Client, box *client.Sandbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != live {
		return
	}
	if len(c.boxes) >= knownMost {
		clear(c.boxes)
	}
	c.boxes[box.ID] = box
}

func (c *connection) unknow(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.boxes, id)
}

func gone(err error) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == ipc.CodeGone
}

// create makes a sandbox. It ignores the cancellation of ctx while the runner works, or the id of a new sandbox
// could be lost; that takes milliseconds.
func (c *connection) create(ctx context.Context, spec runner.Spec) (box *client.Sandbox, err error) {
	err = c.with(ctx, func(live *client.Client) error {
		box, err = live.Create(context.WithoutCancel(ctx), spec)
		return err
	})
	if err == nil && ctx.Err() != nil {
		if !box.Existing {
			stop(box)
		}
		return nil, context.Cause(ctx)
	}
	return box, err
}

// run makes a sandbox with its command, and ignores cancellation likewise. It retries only if the first attempt
// had no effect.
func (c *connection) run(ctx context.Context, spec runner.Spec, cmd runner.Command) (box *client.Sandbox, p *client.Process, err error) {
	err = c.with(ctx, func(live *client.Client) error {
		box, p, err = live.Run(context.WithoutCancel(ctx), spec, cmd)
		return err
	})
	return box, p, err
}

// stopTime bounds cleanup that no caller waits for.
const stopTime = 20 * time.Second

// stop removes a sandbox that has no user any more, even if the request's context has ended.
func stop(box *client.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return box.Remove(ctx)
}
