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

// connection is one to a runner, made anew when that runner has ended. The zero value
// connects when it is first used.
type connection struct {
	opts client.Options

	mu     sync.Mutex
	client *client.Client
	boxes  map[string]*client.Sandbox // opened with client; see known
}

// with calls f with a live client. A runner may have ended since the last call, or be about
// to: then f is called once more, with another. So f must have done nothing when its error
// is ipc.CodeGone.
func (c *connection) with(ctx context.Context, f func(*client.Client) error) error {
	live, err := c.get(ctx)
	if err != nil {
		return err
	}
	if err = f(live); !gone(err) {
		return err
	}
	// It may have been the sandbox that is gone.
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

// live says whether there is a runner, and forgets one that has gone. c.mu is held.
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

// known is a sandbox that was opened by this id with the runner that there is, or nil. It may have
// ended since.
func (c *connection) known(id string) *client.Sandbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live() {
		return nil
	}
	return c.boxes[id]
}

// knownMost is how many opened sandboxes are known at once.
const knownMost = 1024

// know notes a sandbox that a client has opened. It goes by its id: a name may be another's tomorrow.
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

// create makes a sandbox. It is not left half-way when ctx ends, for nobody would know what
// to stop; it takes milliseconds.
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

// run makes a sandbox with its command, and does not leave that half-way either. It is made
// again only where nothing has happened.
func (c *connection) run(ctx context.Context, spec runner.Spec, cmd runner.Command) (box *client.Sandbox, p *client.Process, err error) {
	err = c.with(ctx, func(live *client.Client) error {
		box, p, err = live.Run(context.WithoutCancel(ctx), spec, cmd)
		return err
	})
	return box, p, err
}

// stopTime bounds the end of what nobody waits for any more.
const stopTime = 20 * time.Second

// stop ends a sandbox that nobody is interested in any more, the caller of ours included.
func stop(box *client.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	return box.Stop(ctx)
}
