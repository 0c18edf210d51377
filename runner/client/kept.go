package client

import (
	"context"
	"errors"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// restart starts a sandbox over its files. What it is shown is opened here, by the caller, as when it
// was made.
func (c *Client) restart(ctx context.Context, idOrName string) (api.Opened, error) {
	var reply api.Opened
	info, err := c.inspect(ctx, idOrName)
	if err != nil {
		return reply, err
	}
	spec := info.Spec
	files, err := c.sources(&spec)
	if err != nil {
		return reply, ipc.Errorf(ipc.CodeInvalid, "restart sandbox %q: %w", info.ID, err)
	}
	defer files.close()
	body := api.Restart{Sandbox: info.ID, Exposed: spec.Exposed, Granted: spec.Granted}
	if spec.Egress != nil && c.again != nil {
		own := *spec.Egress
		spec.Egress = &own
		c.again(&spec)
		body.Upstream, body.Secrets = spec.Egress.Upstream, spec.Egress.Secrets
	}
	err = c.peer.Call(ctx, api.OpRestart, body, files.byName, &reply)
	c.refused(files, spec, err)
	return reply, err
}

func hasCode(err error, code ipc.Code) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == code
}

// Stop ends the processes of a sandbox and keeps its files, for the next [Client.Open]. It is an error
// where they are not kept: see "files" in the receipt.
func (c *Client) Stop(ctx context.Context, idOrName string) error {
	c = c.of(ctx, idOrName)
	return c.lost(c.peer.Call(ctx, api.OpStop, api.Target{Sandbox: idOrName, Keep: true}, nil, nil))
}

// Fork makes a sandbox that starts with the files of another one, or of a snapshot; [Client.Open] starts it.
// What either writes from then on is its own. Its Spec is the other's but for name, which may be empty, out, its own
// /out, and publish: it inherits no published port. That a port cannot be listened on now is an error.
//
// One without a name goes with c unless c has made a call about it, such as Inspect: whoever dies before anybody was told
// of it leaves none.
//
// A sandbox in which nothing runs is halted, and the files are shared, so their size does not matter: that it is started
// again by its next command is not told (but what was in /dev/shm is gone). One that has processes holds still
// (SIGSTOP, see package freeze) while what it wrote is copied; a file system that can share contents (btrfs, xfs) does.
func (c *Client) Fork(ctx context.Context, idOrName, name, out string, publish ...runner.Port) (runner.Forked, error) {
	out, err := absPath(out)
	if err == nil {
		err = canListen(publish)
	}
	if err != nil {
		return runner.Forked{}, err
	}
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Name: name, Out: out, Publish: publish})
}

// Snapshot keeps the files of a sandbox as they are, to fork from. It is made as by Fork, does not expire, and
// is removed by Stop.
func (c *Client) Snapshot(ctx context.Context, idOrName, name string) (runner.Forked, error) {
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Name: name, Snapshot: true})
}

// PassingSnapshot is a Snapshot without a name that is removed when c is closed, or whoever made it is
// killed. If the runner is killed, the next one removes it.
func (c *Client) PassingSnapshot(ctx context.Context, idOrName string) (runner.Forked, error) {
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Snapshot: true, Passing: true})
}

func (c *Client) fork(ctx context.Context, r api.ForkRequest) (f runner.Forked, err error) {
	home := c.of(ctx, r.Sandbox)
	err = home.peer.Call(ctx, api.OpFork, r, nil, &f)
	c.made(f.ID, home)
	return f, home.lost(err)
}

// GC removes the kept sandboxes that have expired, and what killed runners left. Every runner
// does so when it starts; the ids are those that this call removed.
func (c *Client) GC(ctx context.Context) (removed []string, err error) {
	return removed, c.lost(c.peer.Call(ctx, api.OpSweep, nil, nil, &removed))
}
