package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/ipc"
)

// restart starts a sandbox over its existing files. The caller opens its sources here, as in Create.
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
		own.Routes = slices.Clone(own.Routes)
		spec.Egress = &own
		c.again(&spec)
		body.Upstream, body.Trust, body.Secrets, body.Routes = spec.Egress.Upstream, spec.Egress.Trust, spec.Egress.Secrets, spec.Egress.Routes
	}
	err = c.peer.Call(ctx, api.OpRestart, body, files.byName, &reply)
	files.refused(spec, err)
	return reply, err
}

func hasCode(err error, code ipc.Code) bool {
	var e *ipc.Error
	return errors.As(err, &e) && e.Code == code
}

// Stop ends the processes of a sandbox and keeps its files for the next [Client.Open]. It asks them with the image's stop
// signal, and kills those that are left after grace. It fails if the files are not persistent: see "files" in the
// receipt.
func (c *Client) Stop(ctx context.Context, idOrName string, grace time.Duration) error {
	return c.stop(ctx, api.Target{Sandbox: idOrName, Keep: true, Grace: runner.Duration(grace)})
}

// stop ends a sandbox, and waits for the servers of its sockets.
func (c *Client) stop(ctx context.Context, t api.Target) error {
	c = c.of(ctx, t.Sandbox)
	var reply api.Ended
	if err := c.peer.Call(ctx, api.OpStop, t, nil, &reply); err != nil {
		return c.lost(err)
	}
	return awaitServers(ctx, reply.Served)
}

// Pause stops the processes of a live sandbox, commands included, and keeps them in memory. The next command resumes them.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.client.lost(s.client.peer.Call(ctx, api.OpPause, api.Target{Sandbox: s.ID}, nil, nil))
}

// Usage measures a live sandbox.
func (s *Sandbox) Usage(ctx context.Context) (u runner.Usage, err error) {
	return Measure(ctx, s.client, s.ID)
}

// Measure is [Sandbox.Usage] for a sandbox that the caller does not open.
func Measure(ctx context.Context, c *Client, idOrName string) (u runner.Usage, err error) {
	c = c.of(ctx, idOrName)
	err = c.lost(c.peer.Call(ctx, api.OpUsage, api.Target{Sandbox: idOrName}, nil, &u))
	return u, err
}

// Fork makes a sandbox that starts with the files of another sandbox or of a snapshot; [Client.Open] starts it. Later
// writes of either one do not affect the other. The new sandbox has the Spec of its source except for its name (which
// may be empty), its own /out and publish. It inherits no published port. Fork fails if a port in publish cannot be
// listened on now.
//
// A fork without a name is removed when c is closed, unless c has made a call about it, such as Inspect. So a caller
// that dies before it reports the fork leaves nothing behind. If ctx ends first, the fork is removed once it is made.
//
// If the source runs no process and has no network, Fork halts it and the two share the files, so their size does not
// matter. The next command starts the source again without reporting a restart, but the content of /dev/shm is lost.
// Otherwise the source is paused (SIGSTOP) while its files are copied. A file system with shared
// extents (btrfs, xfs) shares the contents instead.
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

// Snapshot keeps the current files of a sandbox, as a source for Fork. It is made like a fork and does not expire;
// [Client.Remove] removes it.
func (c *Client) Snapshot(ctx context.Context, idOrName, name string) (runner.Forked, error) {
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Name: name, Snapshot: true})
}

// EphemeralSnapshot makes a Snapshot without a name that is removed when c is closed or its process is killed. If the
// runner is killed, the next runner removes it.
func (c *Client) EphemeralSnapshot(ctx context.Context, idOrName string) (runner.Forked, error) {
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Snapshot: true, Ephemeral: true})
}

// EphemeralFork makes a fork without a name that is removed, with its processes, when c is closed or its process is
// killed. If the runner is killed, the next runner removes its files. Each of mounts and routes replaces the source sandbox's
// with the same Target or Port; [Options.Restart] provides the credentials of routes.
func (c *Client) EphemeralFork(ctx context.Context, idOrName, out string, mounts []runner.Mount, routes []runner.Route) (f runner.Forked, err error) {
	if out, err = absPath(out); err != nil {
		return f, err
	}
	public := make([]runner.Route, len(routes))
	for i, r := range routes {
		public[i] = r.Public()
	}
	return c.fork(ctx, api.ForkRequest{Sandbox: idOrName, Out: out, Ephemeral: true, Mounts: mounts, Routes: public})
}

func (c *Client) fork(ctx context.Context, r api.ForkRequest) (f runner.Forked, err error) {
	home := c.of(ctx, r.Sandbox)
	m, err := home.peer.CallUndone(ctx, api.OpFork, r, nil, func(m *ipc.Message) {
		defer m.Close()
		var late runner.Forked
		if m.Decode(&late) == nil {
			home.Remove(context.WithoutCancel(ctx), late.ID)
		}
	})
	if err != nil {
		return f, home.lost(err)
	}
	defer m.Close()
	err = m.Decode(&f)
	c.made(f.ID, home)
	return f, err
}

// GC removes expired persistent sandboxes and the remains of killed runners. Every runner also does so at start.
// removed lists the sandboxes that this call removed.
func (c *Client) GC(ctx context.Context) (removed []string, err error) {
	return removed, c.lost(c.peer.Call(ctx, api.OpSweep, nil, nil, &removed))
}
